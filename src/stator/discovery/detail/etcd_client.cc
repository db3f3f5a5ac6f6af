// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/detail/etcd_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "stator/io/read_file.h"

namespace stator::discovery::detail {
namespace {

namespace pb = etcdserverpb;

constexpr int kKeepaliveMs = 5000;
constexpr int kKeepaliveTimeoutMs = 5000;
// Nobody waits longer to tell the store what its lease tells it soon anyway.
constexpr Duration kRevokeTimeout = std::chrono::seconds(1);
constexpr int kMessageBytesMax = 256 << 20;  // 10,000 records of 16 KiB in one snapshot

Result<std::string> read_pem(const std::string& path) {
  if (path.empty()) {
    return std::string();
  }
  STATOR_TRY(std::string text, io::read_file(path), "etcd");
  if (text.empty()) {
    return Error(Code::kIo, fmt::format("etcd: {} is empty", path));
  }
  return text;
}

Result<std::shared_ptr<grpc::ChannelCredentials>> credentials(const EtcdOptions& options) {
  if (!options.tls) {
    return grpc::InsecureChannelCredentials();
  }
  grpc::SslCredentialsOptions ssl;
  STATOR_TRY(ssl.pem_root_certs, read_pem(options.ca_path));
  STATOR_TRY(ssl.pem_cert_chain, read_pem(options.certificate_path));
  STATOR_TRY(ssl.pem_private_key, read_pem(options.key_path));
  return grpc::SslCredentials(ssl);
}

/// The first key that does not begin with `prefix`.
std::string end_of(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && end.back() == '\xff') {
    end.pop_back();
  }
  if (!end.empty()) {
    end.back() = static_cast<char>(end.back() + 1);
  }
  return end;
}

/// By the monotonic clock: a stepped wall clock must not end calls.
gpr_timespec deadline_in(Duration time) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(time.count(), GPR_TIMESPAN));
}

int64_t whole_seconds(Duration duration) {
  return std::max<int64_t>(1, std::chrono::ceil<std::chrono::seconds>(duration).count());
}

}  // namespace

Result<std::unique_ptr<EtcdClient>> EtcdClient::create(const EtcdOptions& options) {
  if (options.endpoints.empty()) {
    return Error(Code::kInvalidArgument, "etcd: no endpoint, give etcd://host:port");
  }
  STATOR_TRY(const auto secrets, credentials(options));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // gRPC looks the address up again before it connects again, by default twice a minute at most.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 100);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  auto client = std::unique_ptr<EtcdClient>(new EtcdClient(options));
  for (const std::string& endpoint : options.endpoints) {
    client->channels_.push_back(grpc::CreateCustomChannel(endpoint, secrets, arguments));
  }
  return client;
}

std::shared_ptr<grpc::Channel> EtcdClient::channel() const {
  return channels_[member_.load() % channels_.size()];
}

void EtcdClient::prepare(grpc::ClientContext& call) {
  // A member without a leader must say so instead of answering from the past.
  call.AddMetadata("hasleader", "true");
  const MutexLock lock(mutex_);
  if (!token_.empty()) {
    call.AddMetadata("token", token_);
  }
}

Status EtcdClient::check(const grpc::Status& status) {
  if (status.ok()) {
    return {};
  }
  const std::string text =
      fmt::format("etcd at {}: {}", options_.endpoints[member_.load() % channels_.size()],
                  status.error_message());
  switch (status.error_code()) {
    case grpc::StatusCode::UNAUTHENTICATED: {
      const MutexLock lock(mutex_);
      token_.clear();  // too old: the next call logs in again
      return Error(Code::kUnavailable, text);
    }
    case grpc::StatusCode::PERMISSION_DENIED:
      return Error(Code::kPermissionDenied, text);
    case grpc::StatusCode::INVALID_ARGUMENT:
      // Wrong user or password, or a store with login and a client without.
      return Error(Code::kUnauthenticated, text);
    case grpc::StatusCode::NOT_FOUND:
      return Error(Code::kNotFound, text);
    default:
      next_member();
      return Error(Code::kUnavailable, text);
  }
}

Status EtcdClient::log_in() {
  {
    const MutexLock lock(mutex_);
    if (options_.username.empty() || !token_.empty()) {
      return {};
    }
  }
  grpc::ClientContext call;
  call.set_deadline(deadline_in(options_.call_timeout));
  pb::AuthenticateRequest request;
  request.set_name(options_.username);
  request.set_password(options_.password);
  pb::AuthenticateResponse response;
  STATOR_CHECK(enter(call));
  const grpc::Status status = pb::Auth::NewStub(channel())->Authenticate(&call, request, &response);
  leave(call);
  STATOR_CHECK(check(status));
  const MutexLock lock(mutex_);
  token_ = response.token();
  return {};
}

/// Runs `call(channel, context)` with the login and a deadline.
template <typename Call>
Status EtcdClient::run(Call call) {
  STATOR_CHECK(log_in());
  grpc::ClientContext context;
  context.set_deadline(deadline_in(options_.call_timeout));
  prepare(context);
  STATOR_CHECK(enter(context));
  const grpc::Status status = call(channel(), context);
  leave(context);
  return check(status);
}

Status EtcdClient::enter(grpc::ClientContext& call) {
  const MutexLock lock(mutex_);
  if (interrupted_) {
    return Error(Code::kUnavailable, "etcd: the client is being closed");
  }
  calls_.insert(&call);
  return {};
}

void EtcdClient::leave(grpc::ClientContext& call) {
  const MutexLock lock(mutex_);
  calls_.erase(&call);
}

void EtcdClient::interrupt() {
  const MutexLock lock(mutex_);
  interrupted_ = true;
  for (grpc::ClientContext* call : calls_) {
    call->TryCancel();
  }
}

EtcdWatch::~EtcdWatch() {
  client_.leave(call_);
}

Result<pb::RangeResponse> EtcdClient::range(std::string_view prefix, Wanted wanted) {
  pb::RangeRequest request;
  request.set_key(std::string(prefix));
  request.set_range_end(end_of(prefix));
  request.set_count_only(wanted == Wanted::kPosition);
  pb::RangeResponse response;
  STATOR_CHECK(run([&](const auto& to, auto& context) {
    return pb::KV::NewStub(to)->Range(&context, request, &response);
  }));
  return response;
}

Result<std::string> EtcdClient::get(std::string_view key) {
  pb::RangeRequest request;
  request.set_key(std::string(key));
  pb::RangeResponse response;
  STATOR_CHECK(run([&](const auto& to, auto& context) {
    return pb::KV::NewStub(to)->Range(&context, request, &response);
  }));
  return response.kvs().empty() ? std::string() : response.kvs(0).value();
}

Status EtcdClient::put(std::string_view key, std::string_view value, int64_t lease) {
  pb::PutRequest request;
  request.set_key(std::string(key));
  request.set_value(std::string(value));
  request.set_lease(lease);
  pb::PutResponse response;
  return run([&](const auto& to, auto& context) {
    return pb::KV::NewStub(to)->Put(&context, request, &response);
  });
}

Status EtcdClient::remove_own(std::string_view key, int64_t lease) {
  pb::TxnRequest request;
  pb::Compare& compare = *request.add_compare();
  compare.set_result(pb::Compare::EQUAL);
  compare.set_target(pb::Compare::LEASE);
  compare.set_key(std::string(key));
  compare.set_lease(lease);
  request.add_success()->mutable_request_delete_range()->set_key(std::string(key));
  pb::TxnResponse response;
  return run([&](const auto& to, auto& context) {
    return pb::KV::NewStub(to)->Txn(&context, request, &response);
  });
}

Result<EtcdClient::Lease> EtcdClient::grant(Duration ttl) {
  pb::LeaseGrantRequest request;
  request.set_ttl(whole_seconds(ttl));
  pb::LeaseGrantResponse response;
  STATOR_CHECK(run([&](const auto& to, auto& context) {
    return pb::Lease::NewStub(to)->LeaseGrant(&context, request, &response);
  }));
  return Lease{.id = response.id(), .ttl = std::chrono::seconds(response.ttl())};
}

/// A stream for one question: simple, and at one per TTL/3 cheap enough.
Result<EtcdClient::Lease> EtcdClient::keep_alive(int64_t lease) {
  pb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  pb::LeaseKeepAliveResponse response;
  STATOR_CHECK(run([&](const auto& to, auto& context) {
    const auto stream = pb::Lease::NewStub(to)->LeaseKeepAlive(&context);
    const bool answered = stream->Write(request) && stream->Read(&response);
    if (answered) {
      context.TryCancel();
      stream->Finish();
      return grpc::Status();
    }
    const grpc::Status status = stream->Finish();
    return status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "it did not answer") : status;
  }));
  return Lease{.id = lease, .ttl = std::chrono::seconds(std::max<int64_t>(0, response.ttl()))};
}

Status EtcdClient::revoke(int64_t lease) {
  pb::LeaseRevokeRequest request;
  request.set_id(lease);
  pb::LeaseRevokeResponse response;
  grpc::ClientContext context;
  context.set_deadline(deadline_in(std::min(options_.call_timeout, kRevokeTimeout)));
  prepare(context);
  return check(pb::Lease::NewStub(channel())->LeaseRevoke(&context, request, &response));
}

Result<std::unique_ptr<EtcdWatch>> EtcdClient::watch(std::string_view prefix, int64_t revision) {
  STATOR_CHECK(log_in());
  auto watch = std::unique_ptr<EtcdWatch>(new EtcdWatch(*this));
  prepare(watch->call_);
  STATOR_CHECK(enter(watch->call_));
  watch->stream_ = pb::Watch::NewStub(channel())->Watch(&watch->call_);
  pb::WatchRequest request;
  pb::WatchCreateRequest& create = *request.mutable_create_request();
  create.set_key(std::string(prefix));
  create.set_range_end(end_of(prefix));
  create.set_start_revision(revision);
  create.set_progress_notify(true);
  if (!watch->stream_->Write(request)) {
    watch->call_.TryCancel();
    STATOR_CHECK(check(watch->stream_->Finish()));
    return Error(Code::kUnavailable, "etcd: the watch ended at once");
  }
  return watch;
}

}  // namespace stator::discovery::detail
