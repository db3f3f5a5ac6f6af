// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/detail/etcd_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <optional>
#include <utility>

#include "stator/core/assert.h"
#include "stator/net/grpc_status.h"
#include "stator/net/wakeup.h"

namespace stator::discovery::detail {
namespace {

namespace pb = etcdserverpb;
using namespace std::chrono_literals;

constexpr Duration kKeepalive = 5s;  // etcd takes pings that come sooner for a flood
constexpr Duration kKeepaliveTimeout = 3s;
constexpr Duration kConnectTimeout = 2s;
// Nobody waits longer to tell the store what its lease tells it soon anyway.
constexpr Duration kRevokeTimeout = 1s;
constexpr size_t kMessageBytesMax = size_t{256} << 20;  // 10,000 records of 16 KiB in one snapshot

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

int64_t whole_seconds(Duration duration) {
  return std::max<int64_t>(1, std::chrono::ceil<std::chrono::seconds>(duration).count());
}

}  // namespace

/// A call and the thread that waits for its end.
struct EtcdClient::Waiting {
  Request request;
  net::GrpcMetadata metadata;
  const Take* take = nullptr;  // of a watch

  // The loop's.
  uint64_t number = 0;
  std::unique_ptr<net::GrpcUnaryCall> unary;
  std::unique_ptr<WatchCall> watch;

  void finish(net::GrpcOutcome result, std::string_view bytes) {
    const MutexLock lock(mutex);
    answer = bytes;
    outcome = std::move(result);
    ended.notify_all();
  }
  net::GrpcOutcome wait(std::string& bytes) {
    MutexLock lock(mutex);
    ended.wait(lock, [this]() STATOR_REQUIRES(mutex) { return outcome.has_value(); });
    bytes = std::move(answer);
    return std::move(*outcome);
  }

  Mutex mutex;
  std::condition_variable_any ended;
  std::optional<net::GrpcOutcome> outcome STATOR_GUARDED_BY(mutex);
  std::string answer STATOR_GUARDED_BY(mutex);
};

/// On the loop.
class EtcdClient::WatchCall final : public net::GrpcCallListener {
 public:
  WatchCall(EtcdClient& client, Waiting& waiting)
      : client_(client),
        waiting_(waiting),
        call_(client.channel().begin(
            {.path = waiting.request.path, .metadata = std::move(waiting.metadata)}, *this)) {
    call_->send(waiting.request.bytes);
  }

 private:
  void on_message(std::string_view message) override {
    if (!response_.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
      end({net::kGrpcInternal, "a message of the watch does not parse"});
    } else if ((*waiting_.take)(response_) == Watching::kEnd) {
      end({});
    }
  }
  void on_end(net::GrpcOutcome outcome) override {
    if (outcome.ok()) {
      outcome = {net::kGrpcUnavailable, "the store ended the watch"};
    }
    end(std::move(outcome));
  }
  void end(net::GrpcOutcome outcome) {
    waiting_.finish(std::move(outcome), {});
    client_.end(waiting_.number);  // this is gone
  }

  EtcdClient& client_;
  Waiting& waiting_;
  pb::WatchResponse response_;  // kept for its memory
  std::unique_ptr<net::GrpcCall> call_;
};

EtcdClient::EtcdClient(const EtcdOptions& options, Metrics& metrics)
    : options_(options), shards_(1, loop_clock_, metrics), channels_(options.endpoints.size()) {
  shards_.start();
}

EtcdClient::~EtcdClient() {
  STATOR_ASSERT(loop().run_and_wait([this] {
    STATOR_ASSERT(calls_.empty(), "no call is under way when the client goes");
    channels_.clear();
  }),
                "tear-down fits the inbox");
  shards_.stop();
}

Result<std::unique_ptr<EtcdClient>> EtcdClient::create(const EtcdOptions& options,
                                                       Metrics& metrics) {
  if (options.endpoints.empty()) {
    return Error(Code::kInvalidArgument, "etcd: no endpoint, give etcd://host:port");
  }
  std::shared_ptr<const net::ClientTls> tls;
  if (options.tls) {
    STATOR_TRY(tls,
               net::ClientTls::load(options.certificate_path, options.key_path, options.ca_path),
               "etcd");
  }
  auto client = std::unique_ptr<EtcdClient>(new EtcdClient(options, metrics));
  client->tls_ = std::move(tls);
  return client;
}

const std::string& EtcdClient::endpoint() const {
  return options_.endpoints[member_.load() % options_.endpoints.size()];
}

net::GrpcMetadata EtcdClient::metadata() {
  // A member without a leader must say so instead of answering from the past.
  net::GrpcMetadata fields = {{"hasleader", "true"}};
  const MutexLock lock(mutex_);
  if (!token_.empty()) {
    fields.emplace_back("token", token_);
  }
  return fields;
}

Status EtcdClient::check(const net::GrpcOutcome& outcome) {
  if (outcome.ok()) {
    return {};
  }
  const std::string text = fmt::format("etcd at {}: {}", endpoint(), outcome.message);
  switch (outcome.status) {
    case net::kGrpcUnauthenticated: {
      const MutexLock lock(mutex_);
      token_.clear();  // too old: the next call logs in again
      return Error(Code::kUnavailable, text);
    }
    case net::kGrpcPermissionDenied:
      return Error(Code::kPermissionDenied, text);
    case net::kGrpcInvalidArgument:
      // Wrong user or password, or a store with login and a client without.
      return Error(Code::kUnauthenticated, text);
    case net::kGrpcNotFound:
      return Error(Code::kNotFound, text);
    default:
      ++member_;  // another one next
      return Error(Code::kUnavailable, text);
  }
}

// Calls: begun on the loop, waited for by their threads

net::GrpcChannel& EtcdClient::channel() {
  const size_t member = member_.load() % channels_.size();
  auto& channel = channels_[member];
  if (channel == nullptr) {
    channel = net::GrpcChannel::open({.address = options_.endpoints[member],
                                      .tls = tls_,
                                      .message_bytes_max = kMessageBytesMax,
                                      .connect_timeout = kConnectTimeout,
                                      .keepalive_interval = kKeepalive,
                                      .keepalive_timeout = kKeepaliveTimeout},
                                     loop());
  }
  return *channel;
}

void EtcdClient::begin(const std::shared_ptr<Waiting>& call) {
  if (interrupted_ && call->request.urgency == Urgency::kNormal) {
    call->finish({net::kGrpcCancelled, "the client is being closed"}, {});
    return;
  }
  call->number = ++last_call_;
  calls_.emplace(call->number, call);
  if (call->take != nullptr) {
    call->watch = std::make_unique<WatchCall>(*this, *call);
    return;
  }
  call->unary = std::make_unique<net::GrpcUnaryCall>(
      channel(),
      net::GrpcChannelCall{.path = call->request.path,
                           .deadline = call->request.deadline,
                           .metadata = std::move(call->metadata)},
      call->request.bytes,
      [this, call = call.get()](const net::GrpcOutcome& outcome, std::string_view bytes) {
        call->finish(outcome, bytes);
        end(call->number);
      });
}

/// Whoever waits may be gone as soon as it has been told, and with it all but what calls_ holds.
void EtcdClient::end(uint64_t number) {
  const auto ended = calls_.extract(number);
  if (!ended.empty()) {
    ended.mapped()->unary.reset();
    ended.mapped()->watch.reset();
  }
}

net::GrpcOutcome EtcdClient::ask(Request request, std::string& answer, const Take* take) {
  const auto call = std::make_shared<Waiting>();
  call->request = std::move(request);
  call->metadata = metadata();
  call->take = take;
  net::post_wakeup(loop(), [this, call] { begin(call); });  // one per thread
  return call->wait(answer);
}

void EtcdClient::interrupt() {
  interrupted_ = true;
  STATOR_ASSERT(loop().run_and_wait([this] {
    const auto calls = std::exchange(calls_, {});
    for (const auto& [number, call] : calls) {
      call->unary.reset();
      call->watch.reset();
      call->finish({net::kGrpcCancelled, "the client is being closed"}, {});
    }
  }),
                "tear-down fits the inbox");
}

Status EtcdClient::log_in() {
  {
    const MutexLock lock(mutex_);
    if (options_.username.empty() || !token_.empty()) {
      return {};
    }
  }
  pb::AuthenticateRequest request;
  request.set_name(options_.username);
  request.set_password(options_.password);
  pb::AuthenticateResponse response;
  STATOR_CHECK(run("/etcdserverpb.Auth/Authenticate", request, response));
  const MutexLock lock(mutex_);
  token_ = response.token();
  return {};
}

template <typename Message, typename Response>
Status EtcdClient::run(const char* path, const Message& message, Response& response,
                       Urgency urgency) {
  std::string answer;
  const Duration deadline = urgency == Urgency::kNormal
                                ? options_.call_timeout
                                : std::min(options_.call_timeout, kRevokeTimeout);
  net::GrpcOutcome outcome =
      ask({path, message.SerializeAsString(), deadline, urgency}, answer, nullptr);
  if (outcome.ok() && !response.ParseFromString(answer)) {
    outcome = {net::kGrpcInternal, "its answer does not parse"};
  }
  return check(outcome);
}

Result<pb::RangeResponse> EtcdClient::range(std::string_view prefix, Wanted wanted) {
  STATOR_CHECK(log_in());
  pb::RangeRequest request;
  request.set_key(std::string(prefix));
  request.set_range_end(end_of(prefix));
  request.set_count_only(wanted == Wanted::kPosition);
  pb::RangeResponse response;
  STATOR_CHECK(run("/etcdserverpb.KV/Range", request, response));
  return response;
}

Result<std::string> EtcdClient::get(std::string_view key) {
  STATOR_CHECK(log_in());
  pb::RangeRequest request;
  request.set_key(std::string(key));
  pb::RangeResponse response;
  STATOR_CHECK(run("/etcdserverpb.KV/Range", request, response));
  return response.kvs().empty() ? std::string() : response.kvs(0).value();
}

Status EtcdClient::put(std::string_view key, std::string_view value, int64_t lease) {
  STATOR_CHECK(log_in());
  pb::PutRequest request;
  request.set_key(std::string(key));
  request.set_value(std::string(value));
  request.set_lease(lease);
  pb::PutResponse response;
  return run("/etcdserverpb.KV/Put", request, response);
}

Status EtcdClient::remove_own(std::string_view key, int64_t lease) {
  STATOR_CHECK(log_in());
  pb::TxnRequest request;
  pb::Compare& compare = *request.add_compare();
  compare.set_result(pb::Compare::EQUAL);
  compare.set_target(pb::Compare::LEASE);
  compare.set_key(std::string(key));
  compare.set_lease(lease);
  request.add_success()->mutable_request_delete_range()->set_key(std::string(key));
  pb::TxnResponse response;
  return run("/etcdserverpb.KV/Txn", request, response);
}

Result<EtcdClient::Lease> EtcdClient::grant(Duration ttl) {
  STATOR_CHECK(log_in());
  pb::LeaseGrantRequest request;
  request.set_ttl(whole_seconds(ttl));
  pb::LeaseGrantResponse response;
  STATOR_CHECK(run("/etcdserverpb.Lease/LeaseGrant", request, response));
  return Lease{.id = response.id(), .ttl = std::chrono::seconds(response.ttl())};
}

/// A stream for one question, over when it is answered: simple, and at one per TTL/3 cheap enough.
Result<EtcdClient::Lease> EtcdClient::keep_alive(int64_t lease) {
  STATOR_CHECK(log_in());
  pb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  pb::LeaseKeepAliveResponse response;
  STATOR_CHECK(run("/etcdserverpb.Lease/LeaseKeepAlive", request, response));
  return Lease{.id = lease, .ttl = std::chrono::seconds(std::max<int64_t>(0, response.ttl()))};
}

Status EtcdClient::revoke(int64_t lease) {
  pb::LeaseRevokeRequest request;
  request.set_id(lease);
  pb::LeaseRevokeResponse response;
  return run("/etcdserverpb.Lease/LeaseRevoke", request, response, Urgency::kLast);
}

Status EtcdClient::watch(std::string_view prefix, int64_t revision, const Take& take) {
  STATOR_CHECK(log_in());
  pb::WatchRequest request;
  pb::WatchCreateRequest& create = *request.mutable_create_request();
  create.set_key(std::string(prefix));
  create.set_range_end(end_of(prefix));
  create.set_start_revision(revision);
  create.set_progress_notify(true);
  std::string nothing;
  return check(ask({.path = "/etcdserverpb.Watch/Watch", .bytes = request.SerializeAsString()},
                   nothing, &take));
}

}  // namespace stator::discovery::detail
