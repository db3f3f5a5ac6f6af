// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/kserve/kserve_call.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "stator/api/error_body.h"
#include "stator/frontend/answer.h"
#include "stator/protocols/kserve/kserve.h"

namespace stator::frontend {

namespace kserve = protocols::kserve;
using kserve::GenerateAnswer;
using kserve::InferRequest;
using kserve::Method;

// ---- all calls

namespace {

int status_of(const api::ApiError& error) {
  return api::http_status(error.code(), {.overload_status = kserve::kProtocol.overload_status});
}

std::optional<size_t> json_bytes_of(const net::HttpRequest& request) {
  const auto header = request.header(kserve::kJsonBytesHeader);
  size_t bytes = 0;
  if (!header) {
    return std::nullopt;
  }
  const auto [end, error] = std::from_chars(header->data(), header->data() + header->size(), bytes);
  const bool number = error == std::errc() && end == header->data() + header->size();
  return number ? bytes : SIZE_MAX;
}

}  // namespace

KserveService::Call::Call(KserveService& service, net::HttpExchange& exchange)
    : service_(service), exchange_(exchange), client_([&exchange] {
        std::string body = exchange.request().take_body();
        net::HttpRequest head = exchange.request();
        exchange.request().mutable_body() = std::move(body);
        return head;
      }()) {
  exchange.set_observer(this);
}

void KserveService::Call::on_client_gone(net::ClientGone /*reason*/) {
  cancel_runs();
  over();
}

void KserveService::Call::run(InferRequest request) {
  done_.clear();
  if (request.model.empty()) {
    return refuse_request(request, Error(Code::kInvalidArgument, "the model's name is missing"));
  }
  auto call = kserve::to_generate(request);
  if (!call) {
    return refuse_request(request, call.error());
  }
  if (!accepts(request, *call)) {
    return;
  }
  auto owned = std::make_unique<GenerateRun>(service_.environment_.shard, client_,
                                             std::move(request), std::move(*call), *this);
  GenerateRun& started = *owned;
  runs_.emplace(&started, std::move(owned));
  started.start(service_.environment_.handler);
}

void KserveService::Call::cancel_runs() {
  for (const auto& [run, owned] : runs_) {
    run->cancel();
  }
}

void KserveService::Call::forget(GenerateRun& run) {
  const auto found = runs_.find(&run);
  done_.push_back(std::move(found->second));
  runs_.erase(found);
}

// ---- HTTP

void KserveService::HttpCall::start() {
  const auto path = kserve::parse_model_path(client_.path());
  auto request =
      kserve::read_http_infer(exchange_.request().body(), json_bytes_of(exchange_.request()));
  if (!request) {
    return refuse_request({}, request.error());
  }
  request->model = path->model;
  request->version = path->version;
  run(std::move(*request));
}

void KserveService::HttpCall::fail(int status, std::string_view message) {
  exchange_.set_observer(nullptr);
  std::string body;
  kserve::append_error(body, {.status = status, .message = message}, {});
  exchange_.respond(status, kJson, body);
  over();
}

void KserveService::HttpCall::refuse_request(const InferRequest& /*request*/,
                                             const api::ApiError& error) {
  fail(status_of(error), error.message());
}

bool KserveService::HttpCall::accepts(const InferRequest& /*request*/,
                                      const kserve::GenerateCall& call) {
  if (call.stream) {
    fail(400,
         "an inference request has one answer: ask /generate_stream, or ModelStreamInfer over "
         "gRPC, for a stream");
  }
  return !call.stream;
}

void KserveService::HttpCall::on_answer(GenerateRun& run, const GenerateAnswer& answer) {
  body_ = kserve::write_http_infer(run.request(), answer);
}

void KserveService::HttpCall::on_ended(GenerateRun& run, std::optional<Failure> failure) {
  forget(run);
  if (failure || !body_) {
    return failure ? fail(failure->status, failure->message) : fail(500, "there is no answer");
  }
  exchange_.set_observer(nullptr);
  if (!body_->json_bytes) {
    exchange_.respond_with(200, kJson, std::move(body_->bytes));
  } else {
    const std::string bytes = fmt::to_string(*body_->json_bytes);
    const net::HttpHeader header{kserve::kJsonBytesHeader, bytes};
    exchange_.respond_with(200, "application/octet-stream", std::move(body_->bytes),
                           std::span(&header, 1));
  }
  over();
}

// ---- gRPC

KserveService::GrpcCall::GrpcCall(KserveService& service, net::HttpExchange& exchange,
                                  Method method)
    : Call(service, exchange),
      method_(method),
      grpc_(exchange, service.environment_.config.http.body_bytes_max),
      lease_(exchange.take_body_lease()) {}

void KserveService::GrpcCall::finish(const net::GrpcOutcome& outcome) {
  if (std::exchange(finished_, true)) {
    return;
  }
  cancel_runs();
  exchange_.set_observer(nullptr);
  grpc_.finish(outcome);
  over();
}

void KserveService::GrpcCall::fail(int status, std::string_view message) {
  finish({net::grpc_status_of(status), std::string(message)});
}

void KserveService::GrpcCall::refuse(const api::ApiError& error) {
  fail(status_of(error), error.message());
}

void KserveService::GrpcCall::on_body(std::string_view bytes) {
  while (!finished_) {
    const auto message = grpc_.next(bytes);
    if (!message) {
      break;
    }
    take(*message);
  }
  if (finished_) {
    return;
  }
  if (grpc_.trouble()) {
    return finish(*grpc_.trouble());
  }
  if (!lease_.try_resize(grpc_.unfinished_bytes())) {
    fail(429, "too many bytes of messages are here at the moment (http.bodies_bytes_max)");
  }
}

void KserveService::GrpcCall::on_body_end() {
  ended_ = true;
  if (finished_) {
    return;
  }
  if (!streams() && !asked_) {
    return fail(400, "the call came without its message");
  }
  if (streams() && runs() == 0) {
    finish({});
  }
}

void KserveService::GrpcCall::take(std::string_view message) {
  if (!streams() && std::exchange(asked_, true)) {
    return fail(400, "the call has more than one message");
  }
  if (method_ != Method::kModelInfer && !streams()) {
    return answer_question(message);
  }
  if (runs() >= kRunsMax) {
    return fail(429, fmt::format("more than {} requests of one stream at once", kRunsMax));
  }
  auto request = kserve::read_grpc_infer(message);
  if (!request) {
    return refuse_request({}, request.error());
  }
  run(std::move(*request));
}

void KserveService::GrpcCall::reply(std::string_view message) {
  grpc_.send(message);
  finish({});
}

void KserveService::GrpcCall::answer_question(std::string_view message) {
  const bool ready = service_.server_ready();
  switch (method_) {
    case Method::kServerLive:
      return reply(kserve::write_live(true));
    case Method::kServerReady:
      return reply(kserve::write_live(ready));
    case Method::kServerMetadata:
      return reply(kserve::write_server_metadata());
    default:
      break;
  }
  const auto asked = kserve::read_model_name(message);
  if (!asked) {
    return refuse(asked.error());
  }
  const NamedModel named = service_.environment_.catalog.resolve(asked->name);
  if (named.model == nullptr ||
      (!asked->version.empty() && asked->version != kserve::kModelVersion)) {
    return fail(404, fmt::format("model '{}' not found", asked->name));
  }
  if (method_ == Method::kModelReady) {
    return reply(kserve::write_live(ready && named.model->ready()));
  }
  reply(method_ == Method::kModelConfig ? kserve::write_model_config(asked->name)
                                        : kserve::write_model_metadata(asked->name));
}

void KserveService::GrpcCall::refuse_request(const InferRequest& request,
                                             const api::ApiError& error) {
  if (!streams()) {
    return refuse(error);
  }
  grpc_.send(kserve::write_stream_error(request, error.message()));
}

bool KserveService::GrpcCall::accepts(const InferRequest& /*request*/,
                                      const kserve::GenerateCall& call) {
  if (call.stream && !streams()) {
    fail(400, "ModelInfer has one answer: call ModelStreamInfer for a stream");
    return false;
  }
  return true;
}

void KserveService::GrpcCall::on_answer(GenerateRun& run, const GenerateAnswer& answer) {
  if (streams()) {
    const auto final = run.wants_final() ? std::optional(false) : std::nullopt;
    grpc_.send(kserve::write_stream_part(run.request(), {.answer = &answer, .final = final}));
  } else {
    grpc_.send(kserve::write_infer_response(run.request(), answer));
  }
}

void KserveService::GrpcCall::on_ended(GenerateRun& run, std::optional<Failure> failure) {
  forget(run);
  if (!streams()) {
    return failure ? fail(failure->status, failure->message) : finish({});
  }
  if (failure) {
    grpc_.send(kserve::write_stream_error(run.request(), failure->message));
  } else if (run.wants_final()) {
    grpc_.send(kserve::write_stream_part(run.request(), {.answer = nullptr, .final = true}));
  }
  if (ended_ && runs() == 0) {
    finish({});
  }
}

}  // namespace stator::frontend
