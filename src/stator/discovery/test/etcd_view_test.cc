// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/etcd_view.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stator/discovery/etcd_discovery.h"

namespace stator::discovery {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kPrefix = "stator/v1/instances/";

InstanceRecord make_record(uint64_t worker, std::string address = "127.0.0.1:1") {
  InstanceRecord record;
  record.key.worker = WorkerId(worker);
  record.incarnation = Incarnation(1);
  record.address = std::move(address);
  record.model.name = "demo";
  return record;
}

struct Stored {
  explicit Stored(const InstanceRecord& record)
      : key(std::string(kPrefix) + record.key.to_string()), value(to_json(record)) {}
  EtcdView::Entry entry() const { return {key, value}; }
  std::string key;
  std::string value;
};

class EtcdViewTest : public ::testing::Test {
 protected:
  void resync(EtcdView::Position position, const std::vector<uint64_t>& workers) {
    std::vector<Stored> stored;
    for (const uint64_t worker : workers) {
      stored.emplace_back(make_record(worker));
    }
    std::vector<EtcdView::Entry> entries;
    for (const Stored& one : stored) {
      entries.push_back(one.entry());
    }
    view_.resync(position, entries, now_);
  }
  std::vector<uint64_t> workers() {
    advance_view(told_, view_.take_changes(), {});
    std::vector<uint64_t> out;
    for (const auto& [key, record] : told_) {
      out.push_back(key.worker.value());
    }
    return out;
  }
  using Workers = std::vector<uint64_t>;

  TimePoint now_{};
  InstanceView told_;
  EtcdView view_{{.prefix = std::string(kPrefix), .doubt_time = 60s}};
};

TEST_F(EtcdViewTest, ASnapshotThenChanges) {
  resync({1, 10}, {1, 2});
  view_.put(Stored(make_record(3)).entry());
  view_.remove(Stored(make_record(1)).key);
  view_.advance(12);
  EXPECT_EQ(workers(), (Workers{2, 3}));
  EXPECT_EQ(view_.position().revision, 12);
}

TEST_F(EtcdViewTest, GoesOnOnlyWhereNothingCanHaveBeenMissed) {
  EXPECT_FALSE(view_.can_resume({1, 10})) << "nothing was read yet";
  resync({1, 10}, {1});
  EXPECT_TRUE(view_.can_resume({1, 10}));
  EXPECT_TRUE(view_.can_resume({1, 11}));
  EXPECT_FALSE(view_.can_resume({1, 9})) << "restored from a backup";
  EXPECT_FALSE(view_.can_resume({2, 11})) << "another store";
}

TEST_F(EtcdViewTest, ABadRecordLeavesThePreviousOneInPlace) {
  resync({1, 10}, {1});
  const Stored good(make_record(1));
  view_.put({good.key, "{no json"});
  EXPECT_EQ(workers(), (Workers{1}));
  view_.put({good.key, Stored(make_record(7)).value});
  EXPECT_EQ(workers(), (Workers{1})) << "a record that names somebody else";
  EXPECT_EQ(view_.bad_records(), 2U);
  view_.put({std::string(kPrefix) + "default/backend/generate/9", ""});
  EXPECT_EQ(workers(), (Workers{1})) << "no previous value: nothing to show";
}

TEST_F(EtcdViewTest, KeysOfOthersAreNotOurs) {
  view_.put({"other/v1/instances/default/backend/generate/1", Stored(make_record(1)).value});
  EXPECT_EQ(view_.size(), 0U);
}

TEST_F(EtcdViewTest, AFewThatAreGoneAreGone) {
  resync({1, 10}, {1, 2, 3, 4});
  resync({1, 20}, {1, 2});
  EXPECT_EQ(workers(), (Workers{1, 2}));
  EXPECT_EQ(view_.doubtful(), 0U);
}

TEST_F(EtcdViewTest, MostOfThemGoneAtOnceIsDoubted) {
  resync({1, 10}, {1, 2, 3});
  resync({2, 1}, {});
  EXPECT_EQ(workers(), (Workers{1, 2, 3}));
  EXPECT_EQ(view_.doubtful(), 3U);

  view_.put(Stored(make_record(2)).entry());  // it registered again
  now_ += 30s;
  resync({2, 5}, {2});  // a second look at the same loss does not restart the clock
  EXPECT_EQ(workers(), (Workers{1, 2, 3}));
  EXPECT_FALSE(view_.expire(now_));
  now_ += 30s;
  EXPECT_TRUE(view_.expire(now_));
  EXPECT_EQ(workers(), (Workers{2}));
  EXPECT_EQ(view_.doubtful(), 0U);
}

TEST_F(EtcdViewTest, AWordOfTheStoreEndsTheDoubt) {
  resync({1, 10}, {1, 2, 3});
  resync({2, 1}, {});
  view_.remove(Stored(make_record(1)).key);
  EXPECT_EQ(workers(), (Workers{2, 3}));
  EXPECT_EQ(view_.doubtful(), 2U);
}

TEST_F(EtcdViewTest, WhatIsDoubtedIsNotInTheStore) {
  const Stored one(make_record(1));
  resync({1, 10}, {1});
  EXPECT_EQ(view_.find(one.key), one.value);
  resync({2, 1}, {});
  EXPECT_EQ(view_.find(one.key), "") << "so that its owner writes it again";
}

TEST(EtcdUrl, NamesMembersAndRoot) {
  const auto one = parse_etcd_url("etcd://a:2379");
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->endpoints, std::vector<std::string>{"a:2379"});
  EXPECT_EQ(one->root, "stator");
  EXPECT_FALSE(one->tls);
  const auto three = parse_etcd_url("etcds://a:1,b:2,[::1]:3/clusters/x");
  ASSERT_TRUE(three.has_value());
  EXPECT_EQ(three->endpoints, (std::vector<std::string>{"a:1", "b:2", "[::1]:3"}));
  EXPECT_EQ(three->root, "clusters/x");
  EXPECT_TRUE(three->tls);
}

TEST(EtcdUrl, SaysWhatIsWrong) {
  for (const std::string_view url :
       {"http://a:1", "etcd://", "etcd://a", "etcd://:1", "etcd://a:x", "etcd://a:1,",
        "etcd://a:1/", "etcd://a:1/x/", "etcd:///x", "etcd://a:1,,b:2"}) {
    const auto parsed = parse_etcd_url(url);
    if (url == "etcd://a:1,") {
      EXPECT_TRUE(parsed.has_value()) << url;
      continue;
    }
    ASSERT_FALSE(parsed.has_value()) << url;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace stator::discovery
