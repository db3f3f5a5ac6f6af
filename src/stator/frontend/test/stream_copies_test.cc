// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/stream_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

namespace stator::frontend {
namespace {

using continuity::JournalHub;
using continuity::StreamId;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Answers when it is told to.
class FakeHub final : public JournalHub {
 public:
  struct Call {
    HolderId holder = 0;
    std::vector<std::string> parts;
    Appended done;
  };
  Status start(discovery::Discovery&) override { return {}; }
  void stop() override {}
  std::optional<HolderId> choose_holder(StreamId) const override { return 1; }
  void append(HolderId holder, const std::vector<continuity::JournalPart>& parts, net::Shard&,
              Appended done) override {
    Call call{.holder = holder, .parts = {}, .done = std::move(done)};
    for (const continuity::JournalPart& part : parts) {
      call.parts.push_back(part.data);
    }
    calls.push_back(std::move(call));
  }
  void fetch(HolderId, StreamId, net::Shard&, Fetched) override {}
  HolderId own_id() const override { return 9; }
  Status keep(continuity::JournalPart) override { return {}; }
  std::vector<std::string> kept(StreamId) const override { return {}; }

  void answer(Result<std::vector<StreamId>> refused) {
    const Call call = std::move(calls.front());
    calls.pop_front();
    call.done(refused);
  }
  std::deque<Call> calls;
};

class StreamCopiesTest : public ::testing::Test, public StreamCopies::Owner {
 protected:
  void on_copied(StreamCopies::Serial serial) override { copied_.push_back(serial); }
  void on_copy_lost(StreamCopies::Serial serial) override { lost_.push_back(serial); }
  void append(StreamCopies::Serial serial, std::string data, JournalHub::HolderId holder = 1) {
    copies_->append(holder, serial, {.stream = {.low = serial}, .data = std::move(data)});
  }

  SimClock clock_;
  Metrics metrics_;
  net::Shard shard_{0, clock_, metrics_};
  FakeHub hub_;
  std::shared_ptr<StreamCopies> copies_ = std::make_shared<StreamCopies>(hub_, shard_, *this);
  std::vector<StreamCopies::Serial> copied_, lost_;
};

TEST_F(StreamCopiesTest, OneMessagePerHolderAndTheNextWhenItIsAnswered) {
  append(1, "a");
  append(2, "b");
  append(3, "c", 2);
  copies_->flush();
  ASSERT_EQ(hub_.calls.size(), 2U);
  append(1, "d");
  copies_->flush();
  EXPECT_EQ(hub_.calls.size(), 2U) << "one is under way";
  EXPECT_THAT(copied_, IsEmpty());
  if (hub_.calls.front().holder != 1) {
    std::swap(hub_.calls[0], hub_.calls[1]);
  }
  EXPECT_THAT(hub_.calls.front().parts, ElementsAre("a", "b"));

  hub_.answer(std::vector<StreamId>{});

  EXPECT_THAT(copied_, ElementsAre(1, 2));
  ASSERT_EQ(hub_.calls.size(), 2U);
  EXPECT_THAT(hub_.calls.back().parts, ElementsAre("d"));
}

TEST_F(StreamCopiesTest, ARefusedStreamHasNoCopyTheOthersDo) {
  append(1, "a");
  append(2, "b");
  copies_->flush();
  hub_.answer(std::vector<StreamId>{{.low = 1}});
  EXPECT_THAT(copied_, ElementsAre(2));
  EXPECT_THAT(lost_, ElementsAre(1));
}

TEST_F(StreamCopiesTest, WithoutAnAnswerWhatWaitedIsLostToo) {
  append(1, "a");
  copies_->flush();
  append(2, "b");
  hub_.answer(Error(Code::kUnavailable, "gone"));
  EXPECT_THAT(copied_, IsEmpty());
  EXPECT_THAT(lost_, ElementsAre(1, 2));
  append(3, "c");
  copies_->flush();
  EXPECT_EQ(hub_.calls.size(), 1U) << "the next stream is tried again";
}

TEST_F(StreamCopiesTest, NobodyIsToldWhenTheOwnerHasGone) {
  append(1, "a");
  copies_->flush();
  copies_->close();
  hub_.answer(std::vector<StreamId>{});
  EXPECT_THAT(copied_, IsEmpty());
  append(1, "b");
  copies_->flush();
  copies_.reset();
  hub_.answer(Error(Code::kUnavailable, "gone"));
  EXPECT_THAT(lost_, IsEmpty());
}

}  // namespace
}  // namespace stator::frontend
