// SPDX-License-Identifier: Apache-2.0
#include "stator/responses/response_store.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "stator/core/clock.h"
#include "stator/core/random.h"

namespace stator::responses {
namespace {

constexpr int64_t kNow = 1'000'000;

StoredResponse response(std::string id, std::string previous = "", std::string owner = "") {
  return {.id = std::move(id),
          .owner = std::move(owner),
          .previous_id = std::move(previous),
          .input_json = R"("hi \u00e9")",
          .output_json = R"({"id":"x","type":"message"})",
          .response_json = R"({"status":"completed"})"};
}

class Store : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::unique_ptr<ResponseStore> open(StoreConfig config = {}, int64_t now = kNow) {
    auto store = ResponseStore::open(std::move(config), metrics_, now);
    EXPECT_TRUE(store) << store.error().message();
    return std::move(*store);
  }
  std::string folder_ =
      testing::TempDir() + "/responses" + std::to_string(Random::from_entropy().next());
  Metrics metrics_;
};

TEST_F(Store, FindsAChainOldestFirst) {
  auto store = open();
  store->put(response("a"), kNow);
  store->put(response("b", "a"), kNow);
  store->put(response("c", "b"), kNow);

  auto chain = store->chain("c", "", kNow);

  ASSERT_TRUE(chain);
  ASSERT_EQ(chain->size(), 3U);
  EXPECT_EQ((*chain)[0]->id, "a");
  EXPECT_EQ((*chain)[2]->id, "c");
}

TEST_F(Store, SaysWhichOneOfAChainIsMissing) {
  auto store = open();
  store->put(response("b", "a"), kNow);

  EXPECT_EQ(store->chain("x", "", kNow).error().message(),
            "Previous response with id 'x' not found.");
  const auto broken = store->chain("b", "", kNow);
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code(), Code::kNotFound);
  EXPECT_TRUE(broken.error().message().starts_with("Previous response with id 'a' not found"));
}

TEST_F(Store, ShowsAResponseToItsOwnerOnly) {
  auto store = open();
  store->put(response("a", "", "alice"), kNow);

  EXPECT_NE(store->find("a", "alice", kNow), nullptr);
  EXPECT_EQ(store->find("a", "bob", kNow), nullptr);
  EXPECT_FALSE(store->erase("a", "bob", kNow));
  EXPECT_TRUE(store->erase("a", "alice", kNow));
  EXPECT_EQ(store->size(), 0U);
}

TEST_F(Store, ForgetsTheLeastRecentlyUsedBeyondItsBounds) {
  auto store = open({.entries_max = 2});
  store->put(response("a"), kNow);
  store->put(response("b"), kNow);
  store->find("a", "", kNow);
  store->put(response("c"), kNow);

  EXPECT_EQ(store->find("b", "", kNow), nullptr);
  EXPECT_NE(store->find("a", "", kNow), nullptr);

  auto small = open({.bytes_max = 2 * response("a").bytes()});
  small->put(response("a"), kNow);
  small->put(response("b"), kNow);
  small->put(response("c"), kNow);
  EXPECT_EQ(small->size(), 2U);
}

TEST_F(Store, ForgetsWhatIsTooOld) {
  auto store = open({.keep = std::chrono::seconds(10)});
  store->put(response("a"), kNow);

  EXPECT_NE(store->find("a", "", kNow + 9), nullptr);
  EXPECT_EQ(store->find("a", "", kNow + 10), nullptr);
  store->tick(kNow + 10);
  EXPECT_EQ(store->size(), 0U);
}

TEST_F(Store, OutlivesItsProcessInAFolder) {
  {
    auto store = open({.folder = folder_});
    StoredResponse first = response("a", "", "o\"w");
    first.events = {R"({"type":"x"})", R"({"type":"y"})"};
    store->put(std::move(first), kNow);
    store->put(response("b"), kNow);
    StoredResponse running = response("c");
    running.status = api::ResponseStatus::kInProgress;
    store->put(std::move(running), kNow);
    store->erase("b", "", kNow);
  }

  auto store = open({.folder = folder_}, kNow + 1);

  EXPECT_EQ(store->size(), 2U);
  const auto a = store->find("a", "o\"w", kNow);
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->input_json, R"("hi \u00e9")");
  EXPECT_EQ(a->output_json, R"({"id":"x","type":"message"})");
  EXPECT_EQ(a->events, (std::vector<std::string>{R"({"type":"x"})", R"({"type":"y"})"}));
  const auto c = store->find("c", "", kNow);
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(c->status, api::ResponseStatus::kFailed);
  EXPECT_TRUE(c->response_json.contains("restarted while")) << c->response_json;
}

TEST_F(Store, FindsItemsOfInputAndOutput) {
  auto store = open();
  const std::string id = "resp_0123456789abcdef0123456789abcdef";
  StoredResponse with_items = response(id);
  const std::string item = api::make_item_id("msg", id, 0);
  with_items.output_json = R"({"id":")" + item + R"(","type":"message"})";
  store->put(std::move(with_items), kNow);

  EXPECT_EQ(store->find_item(item, "", kNow), R"({"id":")" + item + R"(","type":"message"})");
  const auto input = store->find_item(api::make_item_id("msg", id, api::kFirstInputItem), "", kNow);
  ASSERT_TRUE(input);
  EXPECT_TRUE(input->contains("input_text"));
  EXPECT_EQ(store->find_item("msg_1", "", kNow), std::nullopt);
}

StoredResponse shared(std::string id, std::string owner = "") {
  return response("resp_" + std::move(id), "", std::move(owner));
}

TEST_F(Store, ProcessesWithASharedFolderFindWhatTheOthersStored) {
  auto one = open({.shared_folder = folder_});
  auto other = open({.shared_folder = folder_});
  one->put(shared("a1"), kNow);
  one->put(shared("b2", "alice"), kNow);
  StoredResponse next = shared("c3");
  next.previous_id = "resp_a1";
  other->put(std::move(next), kNow);

  ASSERT_NE(other->find("resp_a1", "", kNow), nullptr);
  EXPECT_EQ(other->find("resp_a1", "", kNow)->input_json, R"("hi \u00e9")");
  EXPECT_EQ(other->find("resp_b2", "bob", kNow), nullptr);
  const auto chain = one->chain("resp_c3", "", kNow);
  ASSERT_TRUE(chain);
  EXPECT_EQ(chain->size(), 2U);

  EXPECT_TRUE(other->erase("resp_a1", "", kNow));
  EXPECT_EQ(one->find("resp_a1", "", kNow), nullptr);
  one.reset();
  other.reset();
  EXPECT_NE(open({.shared_folder = folder_})->find("resp_c3", "", kNow), nullptr);
}

TEST_F(Store, NamesAreNoPathsInASharedFolder) {
  auto store = open({.shared_folder = folder_});
  for (const char* name : {"../x", "resp_", "resp_../../etc/passwd", "resp_a/b", "a1", ""}) {
    EXPECT_EQ(store->find(name, "", kNow), nullptr) << name;
    EXPECT_FALSE(store->erase(name, "", kNow)) << name;
    EXPECT_FALSE(store->ask_cancel(name)) << name;
  }
}

TEST_F(Store, OthersSeeAndCancelWhatIsUnderWay) {
  // Files have the time of the machine.
  const int64_t unix_now = unix_seconds(SystemClock().wall_now());
  auto maker = open({.shared_folder = folder_}, unix_now);
  auto other = open({.shared_folder = folder_}, unix_now);
  StoredResponse queued = shared("d4");
  queued.status = api::ResponseStatus::kQueued;
  queued.response_json = R"({"status":"queued"})";
  maker->put(queued, unix_now);
  bool cancelled = false;
  maker->add_live(
      std::make_shared<LiveResponse>("resp_d4", "", [&cancelled] { cancelled = true; }));

  EXPECT_EQ(other->find("resp_d4", "", unix_now)->status, api::ResponseStatus::kQueued);
  EXPECT_TRUE(other->ask_cancel("resp_d4"));
  maker->tick(unix_now);
  EXPECT_TRUE(cancelled);

  // Nobody makes it any more.
  const int64_t later = unix_now + SharedFolder::kSilenceMax + 5;
  const auto stale = other->find("resp_d4", "", later);
  ASSERT_NE(stale, nullptr);
  EXPECT_EQ(stale->status, api::ResponseStatus::kFailed);
  queued.status = api::ResponseStatus::kCancelled;
  queued.response_json = R"({"status":"cancelled"})";
  maker->put(std::move(queued), unix_now);
  EXPECT_EQ(other->find("resp_d4", "", later)->status, api::ResponseStatus::kCancelled);
}

TEST_F(Store, ASharedFolderIsSweptByAgeAndNumber) {
  auto opened = SharedFolder::open(folder_);
  ASSERT_TRUE(opened);
  size_t removed = 0;
  for (uint32_t i = 0; i < 600; ++i) {
    ASSERT_TRUE(opened->write(shared(std::to_string(1000 + i))));
  }
  for (uint32_t part = 0; part < SharedFolder::kParts; ++part) {
    removed += opened->sweep(part, 0, 2, UINT64_MAX);
  }
  EXPECT_GT(removed, 0U);
  size_t left = 0;
  for (uint32_t part = 0; part < SharedFolder::kParts; ++part) {
    left += opened->sweep(part, INT64_MAX, 2, UINT64_MAX);
  }
  EXPECT_EQ(left + removed, 600U);
}

}  // namespace
}  // namespace stator::responses
