// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "stator/scaling/connector.h"

namespace stator::scaling {
namespace {

class MapStore final : public KeyStore {
 public:
  explicit MapStore(std::map<std::string, std::string, std::less<>>& keys) : keys_(keys) {}
  Result<std::string> get(std::string_view key) override {
    const auto found = keys_.find(key);
    return found == keys_.end() ? std::string() : found->second;
  }
  Status put(std::string_view key, std::string_view value) override {
    keys_.insert_or_assign(std::string(key), std::string(value));
    return {};
  }

 private:
  std::map<std::string, std::string, std::less<>>& keys_;
};

struct Fixture {
  std::map<std::string, std::string, std::less<>> keys;
  SimClock clock;
  std::unique_ptr<Connector> connector =
      make_virtual_connector(std::make_unique<MapStore>(keys), {}, clock);
};

TEST(VirtualConnector, NumbersItsDecisionsFromZero) {
  Fixture f;
  ASSERT_TRUE(f.connector->set({.prefill = 2, .decode = 3}, "test"));

  EXPECT_EQ(f.keys["num_prefill"], "2");
  EXPECT_EQ(f.keys["num_decode"], "3");
  EXPECT_EQ(f.keys["num_prefill_workers"], "2");
  EXPECT_EQ(f.keys["num_decode_workers"], "3");
  EXPECT_EQ(f.keys["decision_id"], "0");
}

TEST(VirtualConnector, WaitsUntilTheLastDecisionWasCarriedOut) {
  Fixture f;
  ASSERT_TRUE(f.connector->set({.prefill = {}, .decode = 3}, "test"));
  const Status refused = f.connector->set({.prefill = {}, .decode = 4}, "test");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kUnavailable);
  EXPECT_FALSE(f.connector->counts()->unstable.empty());

  f.keys["scaled_decision_id"] = "0";

  EXPECT_TRUE(f.connector->counts()->unstable.empty());
  ASSERT_TRUE(f.connector->set({.prefill = {}, .decode = 4}, "test"));
  EXPECT_EQ(f.keys["decision_id"], "1");
  EXPECT_EQ(f.keys.count("num_prefill"), 0U);
}

TEST(VirtualConnector, GoesOnWhenNobodyCarriesAnythingOut) {
  Fixture f;
  ASSERT_TRUE(f.connector->set({.prefill = {}, .decode = 3}, "test"));
  ASSERT_FALSE(f.connector->set({.prefill = {}, .decode = 4}, "test"));
  f.clock.advance(std::chrono::seconds(1801));
  EXPECT_TRUE(f.connector->set({.prefill = {}, .decode = 4}, "test"));
  EXPECT_EQ(f.keys["num_decode"], "4");
}

TEST(VirtualConnector, NamesTheKeyThatIsNoNumber) {
  Fixture f;
  f.keys["decision_id"] = "soon";
  const auto counts = f.connector->counts();
  ASSERT_FALSE(counts);
  EXPECT_NE(counts.error().message().find("decision_id"), std::string::npos);
}

TEST(VirtualConnector, AFolderHoldsTheKeysAsFiles) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("stator-keys-" + std::to_string(getpid()));
  auto store = open_folder_store((folder / "a").string());
  ASSERT_TRUE(store);
  EXPECT_EQ(*(*store)->get("num_decode"), "");
  ASSERT_TRUE((*store)->put("num_decode", "5"));
  EXPECT_EQ(*(*store)->get("num_decode"), "5");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace stator::scaling
