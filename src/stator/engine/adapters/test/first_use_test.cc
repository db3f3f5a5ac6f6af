// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/first_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace stator::engine::adapters {
namespace {

using ::testing::UnorderedElementsAre;

class FirstUseTest : public ::testing::Test {
 protected:
  FirstUseTest() : folder_(::testing::TempDir() + "/first_use") {
    std::filesystem::remove_all(folder_);
    for (const char* name : {"poet", "clerk", ".hidden"}) {
      std::filesystem::create_directories(folder_ / name);
      std::ofstream(folder_ / name / "adapter_config.json") << "{}";
    }
    std::filesystem::create_directories(folder_ / "no_adapter");
  }
  ~FirstUseTest() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path folder_;
};

TEST_F(FirstUseTest, KnowsWhatIsInItsFolderNow) {
  const FirstUse use(folder_, 2);
  EXPECT_TRUE(use.enabled());
  EXPECT_EQ(use.find("poet"), folder_ / "poet");
  for (const char* wrong : {"no_adapter", "nobody", "../first_use/poet", ".hidden", ""}) {
    EXPECT_FALSE(use.find(wrong)) << wrong;
  }
  std::filesystem::remove_all(folder_ / ".hidden");
  EXPECT_THAT(use.names(), UnorderedElementsAre("poet", "clerk"));
  std::filesystem::remove_all(folder_ / "poet");
  EXPECT_FALSE(use.find("poet"));
}

TEST_F(FirstUseTest, IsOffWithoutAFolderOrRoom) {
  EXPECT_FALSE(FirstUse("", 2).enabled());
  const FirstUse none(folder_, 0);
  EXPECT_FALSE(none.enabled());
  EXPECT_FALSE(none.find("poet"));
  EXPECT_TRUE(none.names().empty());
}

TEST_F(FirstUseTest, TheOneThatWasNotAskedForTheLongestGoes) {
  FirstUse use(folder_, 2);
  EXPECT_FALSE(use.victim());
  use.loaded("a");
  use.loaded("b");
  EXPECT_EQ(use.victim(), "a");
  use.used("a");
  EXPECT_EQ(use.victim(), "b");
  use.used("of somebody else");
  use.unloaded("b");
  EXPECT_FALSE(use.victim());
  use.loaded("c");
  use.loaded("c");
  EXPECT_EQ(use.victim(), "a");
}

}  // namespace
}  // namespace stator::engine::adapters
