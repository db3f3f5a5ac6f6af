// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/net/detached_exchange.h"
#include "stator/net/http_server.h"
#include "stator/protocols/kserve/infer.h"

namespace stator::frontend {

/// One inference request, run as the request of the generate extension that it means, through the
/// whole front door.
///
///   start → Owner::on_answer … → Owner::on_ended          cancel: nothing more is told
class GenerateRun final : private net::DetachedExchange::Listener {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_answer(GenerateRun& run, const protocols::kserve::GenerateAnswer& answer) = 0;
    struct Failure {
      int status = 500;
      std::string message;
    };
    /// The last word; the run may be destroyed once the loop is back from it. Nothing: all is told.
    virtual void on_ended(GenerateRun& run, std::optional<Failure> failure) = 0;
  };

  /// `client` is the request that the client has sent: who it is and what its headers ask for hold
  /// for the run. `owner` outlives it.
  GenerateRun(net::Shard& shard, const net::HttpRequest& client,
              protocols::kserve::InferRequest request, protocols::kserve::GenerateCall call,
              Owner& owner);
  GenerateRun(const GenerateRun&) = delete;
  GenerateRun& operator=(const GenerateRun&) = delete;
  ~GenerateRun() override;

  /// Once.
  void start(net::HttpHandler& handler) { handler.on_request(exchange_); }
  void cancel();
  const protocols::kserve::InferRequest& request() const { return request_; }
  bool wants_final() const { return wants_final_; }

 private:
  void on_answer(int status, std::span<const net::HttpHeader> headers) override;
  void on_bytes(std::string_view bytes) override;
  void on_end(End end) override;
  void take_events();

  const protocols::kserve::InferRequest request_;
  const bool stream_;
  const bool wants_final_;
  Owner* owner_;  // null once cancelled
  int status_ = 500;
  std::string received_;  // what is no complete event or body yet
  std::optional<Owner::Failure> failure_;
  net::DetachedExchange exchange_;
};

}  // namespace stator::frontend
