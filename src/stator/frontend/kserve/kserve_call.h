// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "stator/frontend/kserve/generate_run.h"
#include "stator/frontend/kserve/kserve_service.h"
#include "stator/net/byte_budget.h"
#include "stator/net/grpc_exchange.h"
#include "stator/protocols/kserve/grpc_form.h"
#include "stator/protocols/kserve/http_form.h"

namespace stator::frontend {

/// What a client has asked for and waits for.
class KserveService::Call : public net::ExchangeObserver, public GenerateRun::Owner {
 public:
  Call(KserveService& service, net::HttpExchange& exchange);
  ~Call() override = default;
  /// Answers with an error.
  virtual void fail(int status, std::string_view message) = 0;
  void on_client_gone(net::ClientGone reason) override;

 protected:
  /// Runs `request`; what is wrong with it is told by refuse_request().
  void run(protocols::kserve::InferRequest request);
  virtual void refuse_request(const protocols::kserve::InferRequest& request,
                              const api::ApiError& error) = 0;
  virtual bool accepts(const protocols::kserve::InferRequest& /*request*/,
                       const protocols::kserve::GenerateCall& call) = 0;
  void over() { service_.end(*this); }
  size_t runs() const { return runs_.size(); }
  void forget(GenerateRun& run);
  void cancel_runs();

  KserveService& service_;
  net::HttpExchange& exchange_;
  const net::HttpRequest client_;  // without its body

 private:
  FlatMap<GenerateRun*, std::unique_ptr<GenerateRun>> runs_;
  std::vector<std::unique_ptr<GenerateRun>> done_;  // until the loop is back from them
};

/// POST /v2/models/{model}/infer
class KserveService::HttpCall final : public Call {
 public:
  using Call::Call;
  void start();
  void fail(int status, std::string_view message) override;

 private:
  void refuse_request(const protocols::kserve::InferRequest& request,
                      const api::ApiError& error) override;
  bool accepts(const protocols::kserve::InferRequest& request,
               const protocols::kserve::GenerateCall& call) override;
  void on_answer(GenerateRun& run, const protocols::kserve::GenerateAnswer& answer) override;
  void on_ended(GenerateRun& run, std::optional<Failure> failure) override;

  std::optional<protocols::kserve::HttpBody> body_;
};

/// A call of inference.GRPCInferenceService.
class KserveService::GrpcCall final : public Call {
 public:
  /// Requests of one stream that run at once; further ones are refused.
  static constexpr size_t kRunsMax = 256;

  GrpcCall(KserveService& service, net::HttpExchange& exchange, protocols::kserve::Method method);
  void fail(int status, std::string_view message) override;
  void on_body(std::string_view bytes) override;
  void on_body_end() override;

 private:
  void take(std::string_view message);
  void answer_question(std::string_view message);
  bool streams() const { return method_ == protocols::kserve::Method::kModelStreamInfer; }
  void reply(std::string_view message);
  void refuse(const api::ApiError& error);
  void refuse_request(const protocols::kserve::InferRequest& request,
                      const api::ApiError& error) override;
  bool accepts(const protocols::kserve::InferRequest& request,
               const protocols::kserve::GenerateCall& call) override;
  void on_answer(GenerateRun& run, const protocols::kserve::GenerateAnswer& answer) override;
  void on_ended(GenerateRun& run, std::optional<Failure> failure) override;
  void finish(const net::GrpcOutcome& outcome);

  const protocols::kserve::Method method_;
  net::GrpcExchange grpc_;
  net::ByteLease lease_;  // of a message that has not come whole
  bool asked_ = false;    // the one message of a call that is no stream has come
  bool ended_ = false;    // the client has said all
  bool finished_ = false;
};

}  // namespace stator::frontend
