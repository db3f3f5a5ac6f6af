// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/watch_stream.h"

#include <gtest/gtest.h>

#include <vector>

namespace stator::kube {
namespace {

std::vector<std::string> split(ObjectSplitter& splitter, std::string_view text, size_t piece) {
  std::vector<std::string> objects;
  for (size_t i = 0; i < text.size(); i += piece) {
    const Status status =
        splitter.feed(text.substr(i, piece), [&](std::string_view object) -> Status {
          objects.emplace_back(object);
          return {};
        });
    EXPECT_TRUE(status);
  }
  return objects;
}

TEST(ObjectSplitter, CutsAWatchWhateverThePieces) {
  const std::string_view text = "{\"type\":\"A\",\"o\":{\"x\":\"}{\\\"\"}}\n {\"type\":\"B\"}\n";
  for (const size_t piece : {1, 2, 7, 100}) {
    ObjectSplitter splitter(ObjectSplitter::Mode::kValues);
    EXPECT_EQ(split(splitter, text, piece),
              (std::vector<std::string>{"{\"type\":\"A\",\"o\":{\"x\":\"}{\\\"\"}}",
                                        "{\"type\":\"B\"}"}));
  }
}

TEST(ObjectSplitter, TakesTheItemsOfAListAndKeepsTheRest) {
  const std::string_view text =
      R"({"kind":"PodList","metadata":{"items":[1],"continue":"c"},"items":[{"a":[1,{"b":2}]}, {"c":"]"}],"z":1})";
  for (const size_t piece : {1, 3, 500}) {
    ObjectSplitter splitter(ObjectSplitter::Mode::kItems);
    EXPECT_EQ(split(splitter, text, piece),
              (std::vector<std::string>{R"({"a":[1,{"b":2}]})", R"({"c":"]"})"}));
    EXPECT_EQ(splitter.envelope(),
              R"({"kind":"PodList","metadata":{"items":[1],"continue":"c"},"items":[],"z":1})");
  }
}

TEST(ObjectSplitter, BoundsOneObject) {
  ObjectSplitter splitter(ObjectSplitter::Mode::kValues, 10);
  const Status status =
      splitter.feed("{\"a\":\"0123456789\"}", [](std::string_view) -> Status { return {}; });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), Code::kTooLarge);
}

}  // namespace
}  // namespace stator::kube
