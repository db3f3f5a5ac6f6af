// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <utility>

#include "stator/continuity/detail/call_reaper.h"
#include "stator/continuity/detail/fetch_error.h"
#include "stator/continuity/journal_hub.h"
#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/core/random.h"
#include "stator/net/thread.h"
#include "stator/net/wakeup.h"
#include "stator/proto/frontend/v1/journal.grpc.pb.h"
#include "stator/session/rpc_credentials.h"

namespace stator::continuity {
namespace {

using namespace std::chrono_literals;
namespace pb = frontend::v1;
using Place = JournalStore::Place;
using HolderId = JournalHub::HolderId;

constexpr std::string_view kLogTarget = "continuity::journals";
constexpr int kMessageBytesMax = 256 << 20;  // of both sides: a journal is fetched in one message
constexpr Duration kPeersInterval = 1s;      // how often discovery is asked, and old copies go
constexpr Duration kFetchDeadline = 2s;
constexpr size_t kPeersMax = 256;
constexpr size_t kStreamIdBytes = 16;

std::string to_bytes(StreamId stream) {
  std::string bytes(kStreamIdBytes, '\0');
  std::memcpy(bytes.data(), &stream.high, sizeof(stream.high));
  std::memcpy(bytes.data() + sizeof(stream.high), &stream.low, sizeof(stream.low));
  return bytes;
}

std::optional<StreamId> to_stream(const std::string& bytes) {
  StreamId stream;
  if (bytes.size() != kStreamIdBytes) {
    return std::nullopt;
  }
  std::memcpy(&stream.high, bytes.data(), sizeof(stream.high));
  std::memcpy(&stream.low, bytes.data() + sizeof(stream.high), sizeof(stream.low));
  return stream;
}

/// The copies we hold, shared by those who bring, fetch and forget.
struct SharedStore {
  SharedStore(const JournalStore::Limits& limits, const Clock& clock_in)
      : clock(clock_in), store(limits), own(limits) {}
  std::vector<std::string> read(StreamId stream) const {
    const MutexLock lock(mutex);
    auto parts = store.read(stream);
    return parts.empty() ? own.read(stream) : parts;
  }
  const Clock& clock;
  mutable Mutex mutex;
  JournalStore store STATOR_GUARDED_BY(mutex);  // others' streams
  JournalStore own STATOR_GUARDED_BY(mutex);    // ours
};

class HolderService final : public pb::JournalHolder::CallbackService {
 public:
  HolderService(SharedStore& shared, std::vector<std::string> allowed_callers, Metrics& metrics)
      : shared_(shared),
        allowed_callers_(std::move(allowed_callers)),
        refused_callers_(metrics.counter("stator_runtime_journal_refused_callers_total",
                                         "calls of certified processes that may not make any")) {}

  grpc::ServerUnaryReactor* Append(grpc::CallbackServerContext* call,
                                   const pb::AppendRequest* request,
                                   pb::AppendResponse* response) override {
    if (grpc::Status status = admit(*call); !status.ok()) {
      return finish(*call, std::move(status));
    }
    const TimePoint now = shared_.clock.now();
    {
      const MutexLock lock(shared_.mutex);
      for (const pb::Part& part : request->parts()) {
        const auto stream = to_stream(part.stream());
        const Place place = part.begins() ? Place::kBegin : Place::kEnd;
        if (!stream || !shared_.store.append(*stream, place, part.data(), now)) {
          response->add_refused(part.stream());
        }
      }
    }
    return finish(*call, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* Fetch(grpc::CallbackServerContext* call,
                                  const pb::FetchRequest* request,
                                  pb::FetchResponse* response) override {
    if (grpc::Status status = admit(*call); !status.ok()) {
      return finish(*call, std::move(status));
    }
    std::vector<std::string> parts;
    if (const auto stream = to_stream(request->stream())) {
      parts = shared_.read(*stream);
    }
    for (std::string& part : parts) {
      response->add_parts(std::move(part));
    }
    return finish(*call, parts.empty() ? grpc::Status(grpc::StatusCode::NOT_FOUND, "not held here")
                                       : grpc::Status::OK);
  }

 private:
  static grpc::ServerUnaryReactor* finish(grpc::CallbackServerContext& call, grpc::Status status) {
    grpc::ServerUnaryReactor* reactor = call.DefaultReactor();
    reactor->Finish(std::move(status));
    return reactor;
  }

  /// Every refusal is counted, the first one is logged.
  grpc::Status admit(const grpc::CallbackServerContext& call) {
    grpc::Status status = session::check_caller(*call.auth_context(), allowed_callers_);
    if (!status.ok()) {
      refused_callers_.add();
      if (!refusal_logged_.exchange(true)) {
        log::warn(kLogTarget, "a process may not keep journals here", {{"peer", call.peer()}});
      }
    }
    return status;
  }

  SharedStore& shared_;
  const std::vector<std::string> allowed_callers_;
  const Counter refused_callers_;
  std::atomic<bool> refusal_logged_{false};
};

struct Peer {
  Peer(std::string address_in, const std::shared_ptr<grpc::Channel>& channel)
      : address(std::move(address_in)), stub(pb::JournalHolder::NewStub(channel)) {}
  const std::string address;
  const std::unique_ptr<pb::JournalHolder::Stub> stub;
  bool well = true;  // the hub's mutex guards it
};

/// One call under way; gRPC's until it ends.
template <typename Request, typename Response>
struct Call {
  Call(std::shared_ptr<Peer> peer_in, Duration deadline) : peer(std::move(peer_in)) {
    const auto milliseconds =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline).count();
    context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                      gpr_time_from_millis(milliseconds, GPR_TIMESPAN)));
  }
  const std::shared_ptr<Peer> peer;  // shared with the hub's list, which may forget it first
  grpc::ClientContext context;
  Request request;
  Response response;
};
using AppendCall = Call<pb::AppendRequest, pb::AppendResponse>;
using FetchCall = Call<pb::FetchRequest, pb::FetchResponse>;

class GrpcJournalHub final : public JournalHub {
 public:
  GrpcJournalHub(const JournalHubConfig& config, std::optional<net::TlsFiles> tls,
                 const Clock& clock, Metrics& metrics)
      : config_(config),
        tls_(std::move(tls)),
        clock_(clock),
        // 53 bits, never zero: it is an instance id in discovery, too.
        own_id_((Random::from_entropy().next() >> 11) | 1),
        shared_(config.limits, clock),
        service_(shared_, tls_ ? tls_->allowed_callers : std::vector<std::string>(), metrics),
        held_bytes_(metrics.gauge("stator_runtime_journals_held_bytes",
                                  "memory of other frontends' journals kept here")),
        held_streams_(metrics.gauge("stator_runtime_journals_held",
                                    "other frontends' streams whose journals are kept here")),
        own_bytes_(metrics.gauge("stator_runtime_journals_own_bytes",
                                 "memory of the journals of this process's own streams")),
        holders_(metrics.gauge("stator_runtime_journal_holders",
                               "other frontends that may keep our streams' journals")),
        too_long_(metrics.counter("stator_runtime_journals_too_long_total",
                                  "streams that could not be gone on with because their journal "
                                  "is longer than a message may be")),
        call_failures_(metrics.counter("stator_runtime_journal_call_failures_total",
                                       "calls that another frontend did not answer in time")) {}
  ~GrpcJournalHub() override { stop(); }

  Status start(discovery::Discovery& discovery) override {
    STATOR_CHECK(listen());
    discovery::InstanceRecord record;
    record.key = {"default", "frontend", "journals", WorkerId(own_id_)};
    record.incarnation =
        Incarnation(static_cast<uint64_t>(clock_.wall_now().time_since_epoch().count()));
    record.address = fmt::format("{}:{}", config_.host, port_);
    record.started_at_ms = unix_seconds(clock_.wall_now()) * 1000;
    STATOR_TRY(registration_, discovery.register_instance(record));
    thread_ = net::Thread("journals", [this, &discovery] { run(discovery); });
    return {};
  }

  void stop() override {
    registration_.reset();
    std::map<HolderId, std::shared_ptr<Peer>> peers;  // go on this thread
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      peers.swap(peers_);
    }
    wake_.notify_all();
    thread_.join();
    if (server_ != nullptr) {
      server_->Shutdown(gpr_time_from_millis(0, GPR_TIMESPAN));
      server_.reset();
    }
    reaper_.reset();  // waits for calls under way: their deadlines are short
  }

  std::optional<HolderId> choose_holder(StreamId stream) const override {
    std::optional<HolderId> best;
    uint64_t highest = 0;
    const MutexLock lock(mutex_);
    for (const auto& [id, peer] : peers_) {
      // Rendezvous hashing (Thaler and Ravishankar 1998).
      const uint64_t score = mix64(stream.low ^ id);
      if (peer->well && (!best || score > highest)) {
        best = id;
        highest = score;
      }
    }
    return best;
  }

  void append(HolderId holder, const std::vector<JournalPart>& parts, net::Shard& shard,
              Appended done) override {
    const std::shared_ptr<Peer> peer = find(holder);
    if (peer == nullptr) {
      Result<std::vector<StreamId>> gone = Error(Code::kUnavailable, "the holder is not there");
      answer(shard, std::move(done), std::move(gone));
      return;
    }
    auto call = std::make_shared<AppendCall>(peer, config_.ack_timeout);
    for (const JournalPart& part : parts) {
      pb::Part* out = call->request.add_parts();
      out->set_stream(to_bytes(part.stream));
      out->set_data(part.data);
      out->set_begins(part.place == Place::kBegin);
    }
    reaper_->begin();
    peer->stub->async()->Append(&call->context, &call->request, &call->response,
                                [this, call, &shard, reaper = reaper_.get(),
                                 done = std::move(done)](const grpc::Status& status) mutable {
                                  Result<std::vector<StreamId>> refused = std::vector<StreamId>();
                                  if (status.ok()) {
                                    for (const std::string& bytes : call->response.refused()) {
                                      refused->push_back(to_stream(bytes).value_or(StreamId{}));
                                    }
                                  } else {
                                    refused = fail(*call->peer, status);
                                  }
                                  answer(shard, std::move(done), std::move(refused));
                                  reaper->end(std::move(call));
                                });
  }

  HolderId own_id() const override { return own_id_; }

  Status keep(JournalPart part) override {
    const TimePoint now = clock_.now();
    const MutexLock lock(shared_.mutex);
    return shared_.own.append(part.stream, part.place, std::move(part.data), now);
  }

  std::vector<std::string> kept(StreamId stream) const override {
    const MutexLock lock(shared_.mutex);
    return shared_.own.read(stream);
  }

  void fetch(HolderId holder, StreamId stream, net::Shard& shard, Fetched done) override {
    const std::shared_ptr<Peer> peer = holder == own_id_ ? nullptr : find(holder);
    if (peer == nullptr) {
      Result<std::vector<std::string>> parts =
          holder == own_id_ ? shared_.read(stream) : std::vector<std::string>();
      if (parts->empty()) {
        parts = Error(Code::kNotFound, "not held here");
      }
      answer(shard, std::move(done), std::move(parts));
      return;
    }
    auto call = std::make_shared<FetchCall>(peer, kFetchDeadline);
    call->request.set_stream(to_bytes(stream));
    reaper_->begin();
    peer->stub->async()->Fetch(
        &call->context, &call->request, &call->response,
        [call, &shard, reaper = reaper_.get(), too_long = too_long_,
         done = std::move(done)](const grpc::Status& status) mutable {
          Result<std::vector<std::string>> parts = std::vector<std::string>();
          if (status.ok()) {
            parts->assign(call->response.parts().begin(), call->response.parts().end());
          } else {
            parts = detail::to_fetch_error(status);
            too_long.add(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ? 1 : 0);
          }
          answer(shard, std::move(done), std::move(parts));
          reaper->end(std::move(call));
        });
  }

 private:
  Status listen() {
    STATOR_TRY(channel_credentials_, session::channel_credentials(tls_));
    STATOR_TRY(const auto credentials, session::server_credentials(tls_));
    grpc::ServerBuilder builder;
    const std::string wanted = fmt::format("{}:{}", config_.host, config_.port);
    builder.AddListeningPort(wanted, credentials, &port_);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(kMessageBytesMax);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return Error(Code::kIo, fmt::format("journals: cannot listen on {} (frontend.journal_host "
                                          "and frontend.journal_port)",
                                          wanted));
    }
    return {};
  }

  void run(discovery::Discovery& discovery) {
    while (true) {
      find_peers(discovery);
      {
        const MutexLock lock(shared_.mutex);
        shared_.store.expire(clock_.now());
        held_bytes_.set(static_cast<double>(shared_.store.bytes()));
        held_streams_.set(static_cast<double>(shared_.store.streams()));
        shared_.own.expire(clock_.now());
        own_bytes_.set(static_cast<double>(shared_.own.bytes()));
      }
      MutexLock lock(mutex_);
      if (stopping_ || wake_.wait_for(lock, kPeersInterval,
                                      [this]() STATOR_REQUIRES(mutex_) { return stopping_; })) {
        return;
      }
    }
  }

  /// Who is listed is tried again, though it failed before.
  void find_peers(discovery::Discovery& discovery) {
    std::map<HolderId, std::shared_ptr<Peer>> found;
    for (const discovery::InstanceRecord& record :
         discovery.list({.namespace_name = {}, .component = "frontend", .endpoint = "journals"})) {
      const HolderId id = record.key.worker.value();
      if (id == own_id_ || found.size() >= kPeersMax) {
        continue;
      }
      auto known = find(id);
      found[id] = known != nullptr && known->address == record.address
                      ? std::move(known)
                      : std::make_shared<Peer>(record.address, connect(record.address));
    }
    const MutexLock lock(mutex_);
    if (!stopping_) {
      peers_.swap(found);
      for (const auto& [id, peer] : peers_) {
        peer->well = true;
      }
      holders_.set(static_cast<double>(peers_.size()));
    }
  }

  std::shared_ptr<grpc::Channel> connect(const std::string& address) const {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
    if (tls_ && !config_.tls_name.empty()) {
      arguments.SetSslTargetNameOverride(config_.tls_name);
    }
    return grpc::CreateCustomChannel(address, channel_credentials_, arguments);
  }

  std::shared_ptr<Peer> find(HolderId id) const {
    const MutexLock lock(mutex_);
    const auto known = peers_.find(id);
    return known == peers_.end() ? nullptr : known->second;
  }

  Error fail(Peer& peer, const grpc::Status& status) {
    call_failures_.add();
    log::warn(kLogTarget, "a frontend that keeps our journals did not answer",
              {{"address", peer.address}, {"error", status.error_message()}});
    const MutexLock lock(mutex_);
    peer.well = false;
    return detail::to_fetch_error(status);
  }

  template <typename Done, typename Outcome>
  static void answer(net::Shard& shard, Done done, Outcome outcome) {
    auto shared = std::make_shared<Outcome>(std::move(outcome));  // tasks are copied
    net::post_wakeup(shard, [done = std::move(done), shared] { done(*shared); });
  }

  const JournalHubConfig config_;
  const std::optional<net::TlsFiles> tls_;
  const Clock& clock_;
  const HolderId own_id_;
  SharedStore shared_;
  HolderService service_;
  const Gauge held_bytes_, held_streams_, own_bytes_, holders_;
  const Counter too_long_, call_failures_;
  std::shared_ptr<grpc::ChannelCredentials> channel_credentials_;  // from listen() on
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  std::unique_ptr<discovery::Registration> registration_;

  mutable Mutex mutex_;
  std::condition_variable_any wake_;
  std::map<HolderId, std::shared_ptr<Peer>> peers_ STATOR_GUARDED_BY(mutex_);
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  std::unique_ptr<detail::CallReaper> reaper_ = std::make_unique<detail::CallReaper>();
  net::Thread thread_;
};

}  // namespace

std::unique_ptr<JournalHub> JournalHub::create(const JournalHubConfig& config,
                                               std::optional<net::TlsFiles> tls, const Clock& clock,
                                               Metrics& metrics) {
  return std::make_unique<GrpcJournalHub>(config, std::move(tls), clock, metrics);
}

}  // namespace stator::continuity
