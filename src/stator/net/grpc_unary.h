// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "stator/net/grpc_server.h"
#include "stator/net/grpc_status.h"

namespace stator::net {

/// The server's side of calls with one request and one answer. Request and Response are protobuf
/// messages, which this module need not know.
///
///   methods["/pkg.Service/Ask"] = serve_unary<Question>([](auto call, Question& question) {
///     answer_unary(*call, make_answer(question));   // now, or later from any thread
///   });
template <typename Request>
class GrpcUnaryHandler final : public GrpcCallHandler {
 public:
  /// On the loop, once the request is whole.
  using Answer = std::function<void(const std::shared_ptr<GrpcServerCall>& call, Request& request)>;

  GrpcUnaryHandler(std::shared_ptr<GrpcServerCall> call, Answer answer)
      : call_(std::move(call)), answer_(std::move(answer)) {}

  void on_message(std::string_view message) override {
    if (++requests_ != 1 ||
        !request_.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
      call_->finish({kGrpcInvalidArgument, "not one request of this method"});
    }
  }
  void on_half_closed() override {
    if (requests_ == 0) {
      call_->finish({kGrpcInvalidArgument, "no request"});
      return;
    }
    answer_(call_, request_);
  }
  void on_gone() override {}

 private:
  const std::shared_ptr<GrpcServerCall> call_;  // shared with those who answer later
  const Answer answer_;
  Request request_;
  int requests_ = 0;
};

template <typename Request>
GrpcServer::Start serve_unary(typename GrpcUnaryHandler<Request>::Answer answer) {
  return [answer = std::move(answer)](std::shared_ptr<GrpcServerCall> call) {
    return std::make_shared<GrpcUnaryHandler<Request>>(std::move(call), answer);
  };
}

template <typename Response>
void answer_unary(GrpcServerCall& call, const Response& response) {
  call.send(response.SerializeAsString());
  call.finish({});
}

}  // namespace stator::net
