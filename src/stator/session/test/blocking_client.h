// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stator/net/grpc_call.h"
#include "stator/net/shard.h"

namespace stator::session::test {

/// One call of a worker's gRPC service, from beginning to end, bytes as they are on the wire.
class BlockingClient final : net::GrpcCallListener {
 public:
  enum class HalfClose : uint8_t { kNo, kYes };

  /// Sends `messages` and waits for the call's end.
  BlockingClient(const std::string& address, const std::string& method,
                 const std::vector<std::string>& messages, net::Shard& shard,
                 HalfClose half_close = HalfClose::kYes) {
    EXPECT_TRUE(shard.run_and_wait([&] {
      call_ = net::GrpcCall::open(
          {.address = address, .path = "/stator.worker.v1.Worker/" + method}, shard, *this);
      for (const std::string& message : messages) {
        call_->send(message);
      }
      if (half_close == HalfClose::kYes) {
        call_->finish_sending();
      }
    }));
    outcome_ = ended_.get_future().get();
    EXPECT_TRUE(shard.run_and_wait([&] { call_.reset(); }));
  }

  const net::GrpcOutcome& outcome() const { return outcome_; }
  const std::vector<std::string>& answers() const { return answers_; }

 private:
  void on_message(std::string_view message) override { answers_.emplace_back(message); }
  void on_end(net::GrpcOutcome outcome) override { ended_.set_value(std::move(outcome)); }

  std::unique_ptr<net::GrpcCall> call_;
  std::vector<std::string> answers_;
  std::promise<net::GrpcOutcome> ended_;
  net::GrpcOutcome outcome_;
};

}  // namespace stator::session::test
