// SPDX-License-Identifier: Apache-2.0
#include "stator/session/operator_client.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "stator/core/log.h"
#include "stator/net/grpc_callers.h"
#include "stator/net/grpc_status.h"
#include "stator/proto/worker/v1/worker.pb.h"

namespace stator::session {
namespace {

namespace pb = worker::v1;

// Engines have two minutes (AdapterEngine::control).
constexpr Duration kDeadline = std::chrono::seconds(130);

OperatorReply reply_of(const net::GrpcOutcome& outcome, std::string_view bytes,
                       const std::string& address) {
  pb::OperateResponse response;
  if (outcome.status == net::kGrpcOk &&
      response.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return {.status = response.status(),
            .message = response.message(),
            .adapters = {response.adapters().begin(), response.adapters().end()}};
  }
  const uint32_t status = outcome.status == net::kGrpcUnimplemented      ? 501
                          : outcome.status == net::kGrpcDeadlineExceeded ? 504
                                                                         : 502;
  return {.status = status,
          .message = status == 501 ? "a worker of this kind takes no operators' wishes"
                                   : fmt::format("the worker at {} gave no answer: {}", address,
                                                 outcome.message)};
}

}  // namespace

struct OperatorClient::Call {
  std::unique_ptr<net::GrpcChannel> channel;
  std::unique_ptr<net::GrpcUnaryCall> unary;  // goes before its channel
};

Result<std::unique_ptr<OperatorClient>> OperatorClient::create(
    const std::optional<net::TlsFiles>& tls, net::Shard& shard) {
  STATOR_TRY(auto certificates, net::load_client_tls(tls));
  return std::unique_ptr<OperatorClient>(
      new OperatorClient(std::move(certificates), tls ? tls->server_name : "", shard));
}

OperatorClient::OperatorClient(std::shared_ptr<const net::ClientTls> tls, std::string server_name,
                               net::Shard& shard)
    : tls_(std::move(tls)), server_name_(std::move(server_name)), shard_(shard) {}

OperatorClient::~OperatorClient() = default;

void OperatorClient::ask(const std::string& address, const OperatorWish& wish, OperatorDone done) {
  pb::OperateRequest request;
  request.set_method(wish.method);
  request.set_path(wish.path);
  request.set_body(wish.body);
  const uint64_t id = ++last_;
  auto call = std::make_unique<Call>();
  call->channel = net::GrpcChannel::open(
      {.address = address, .tls = tls_, .server_name = server_name_}, shard_);
  call->unary = std::make_unique<net::GrpcUnaryCall>(
      *call->channel,
      net::GrpcChannelCall{.path = "/stator.worker.v1.Worker/Operate", .deadline = kDeadline},
      request.SerializeAsString(),
      [this, id, address, done = std::move(done)](const net::GrpcOutcome& outcome,
                                                  std::string_view bytes) {
        // The channel is in the middle of telling us: it goes a turn later.
        const bool posted = shard_.post([this, id, alive = std::weak_ptr<bool>(alive_)] {
          if (!alive.expired()) {
            calls_.erase(id);
          }
        });
        if (!posted) {
          log::debug("session::operator", "closing: a connection stays until the end");
        }
        done(reply_of(outcome, bytes, address));
      });
  calls_.emplace(id, std::move(call));
}

}  // namespace stator::session
