// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "stator/continuity/detail/fetch_error.h"
#include "stator/continuity/journal_hub.h"
#include "stator/core/assert.h"
#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/core/random.h"
#include "stator/net/grpc_callers.h"
#include "stator/net/grpc_channel.h"
#include "stator/net/grpc_server.h"
#include "stator/net/grpc_status.h"
#include "stator/net/grpc_unary.h"
#include "stator/net/wakeup.h"
#include "stator/proto/frontend/v1/journal.pb.h"

namespace stator::continuity {
namespace {

using namespace std::chrono_literals;
namespace pb = frontend::v1;
using Place = JournalStore::Place;
using HolderId = JournalHub::HolderId;

constexpr std::string_view kLogTarget = "continuity::journals";
constexpr const char* kAppendPath = "/stator.frontend.v1.JournalHolder/Append";
constexpr const char* kFetchPath = "/stator.frontend.v1.JournalHolder/Fetch";
// Of both sides: a journal is fetched in one message.
constexpr size_t kMessageBytesMax = size_t{256} << 20;
constexpr size_t kUnfinishedBytesMax = 2 * kMessageBytesMax;  // of the process
constexpr Duration kMessageTimeout = 15s;
constexpr uint32_t kCallsMax = 1024;     // between two frontends at once
constexpr Duration kPeersInterval = 1s;  // how often discovery is asked, and old copies go
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

struct HubMetrics {
  explicit HubMetrics(Metrics& metrics)
      : held_bytes(metrics.gauge("stator_runtime_journals_held_bytes",
                                 "memory of other frontends' journals kept here")),
        held_streams(metrics.gauge("stator_runtime_journals_held",
                                   "other frontends' streams whose journals are kept here")),
        own_bytes(metrics.gauge("stator_runtime_journals_own_bytes",
                                "memory of the journals of this process's own streams")),
        holders(metrics.gauge("stator_runtime_journal_holders",
                              "other frontends that may keep our streams' journals")),
        too_long(metrics.counter("stator_runtime_journals_too_long_total",
                                 "streams that could not be gone on with because their journal "
                                 "is longer than a message may be")),
        call_failures(metrics.counter("stator_runtime_journal_call_failures_total",
                                      "calls that another frontend did not answer in time")),
        refused_callers(metrics.counter("stator_runtime_journal_refused_callers_total",
                                        "calls of certified processes that may not make any")) {}
  Gauge held_bytes, held_streams, own_bytes, holders;
  Counter too_long, call_failures, refused_callers;
};

/// The others' calls. On the hub's loop.
class HolderService {
 public:
  HolderService(SharedStore& shared, const std::optional<net::TlsFiles>& tls,
                const Counter& refused_callers)
      : shared_(shared), callers_(tls, refused_callers) {}

  net::GrpcServer::Methods methods() {
    net::GrpcServer::Methods methods;
    methods[kAppendPath] = admitted(net::serve_unary<pb::AppendRequest>(
        [this](const auto& call, auto& request) { append(*call, request); }));
    methods[kFetchPath] = admitted(net::serve_unary<pb::FetchRequest>(
        [this](const auto& call, auto& request) { fetch(*call, request); }));
    return methods;
  }

 private:
  void append(net::GrpcServerCall& call, pb::AppendRequest& request) {
    const TimePoint now = shared_.clock.now();
    pb::AppendResponse response;
    {
      const MutexLock lock(shared_.mutex);
      for (pb::Part& part : *request.mutable_parts()) {
        const auto stream = to_stream(part.stream());
        const Place place = part.begins() ? Place::kBegin : Place::kEnd;
        if (!stream ||
            !shared_.store.append(*stream, place, std::move(*part.mutable_data()), now)) {
          response.add_refused(part.stream());
        }
      }
    }
    net::answer_unary(call, response);
  }

  void fetch(net::GrpcServerCall& call, const pb::FetchRequest& request) {
    std::vector<std::string> parts;
    if (const auto stream = to_stream(request.stream())) {
      parts = shared_.read(*stream);
    }
    if (parts.empty()) {
      call.finish({net::kGrpcNotFound, "not held here"});
      return;
    }
    pb::FetchResponse response;
    for (std::string& part : parts) {
      response.add_parts(std::move(part));
    }
    net::answer_unary(call, response);
  }

  /// Every refusal is counted, the first one is logged.
  net::GrpcServer::Start admitted(net::GrpcServer::Start start) {
    return [this, start = std::move(start)](
               std::shared_ptr<net::GrpcServerCall> call) -> std::shared_ptr<net::GrpcCallHandler> {
      if (callers_.admit(*call)) {
        return start(std::move(call));
      }
      if (!std::exchange(refusal_logged_, true)) {
        log::warn(kLogTarget, "a process may not keep journals here",
                  {{"peer", call->caller().address}});
      }
      return nullptr;
    };
  }

  SharedStore& shared_;
  const net::GrpcCallers callers_;
  bool refusal_logged_ = false;
};

/// Another frontend.
struct Peer {
  std::string address;
  bool well = true;
};

/// Shards ask from their threads; the loop makes the calls, answers those of others and looks after
/// both every second.
class GrpcJournalHub final : public JournalHub {
 public:
  GrpcJournalHub(const JournalHubConfig& config, std::optional<net::TlsFiles> tls,
                 const Clock& clock, Metrics& metrics)
      : config_(config),
        tls_(std::move(tls)),
        clock_(clock),
        metrics_(metrics),
        // 53 bits, never zero: it is an instance id in discovery, too.
        own_id_((Random::from_entropy().next() >> 11) | 1),
        shared_(config.limits, clock),
        series_(metrics),
        service_(shared_, tls_, series_.refused_callers),
        shards_(1, loop_clock_, metrics) {}
  GrpcJournalHub(const GrpcJournalHub&) = delete;
  GrpcJournalHub& operator=(const GrpcJournalHub&) = delete;
  ~GrpcJournalHub() override { stop(); }

  Status start(discovery::Discovery& discovery) override {
    STATOR_CHECK(listen());
    discovery::InstanceRecord record;
    record.key = {"default", "frontend", "journals", WorkerId(own_id_)};
    record.incarnation =
        Incarnation(static_cast<uint64_t>(clock_.wall_now().time_since_epoch().count()));
    record.address = fmt::format("{}:{}", config_.host, server_->port());
    record.started_at_ms = unix_seconds(clock_.wall_now()) * 1000;
    STATOR_TRY(registration_, discovery.register_instance(record));
    run_on_loop([this, &discovery] { tick(discovery); });
    return {};
  }

  void stop() override {
    registration_.reset();
    if (server_ == nullptr) {
      return;
    }
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      peers_.clear();
    }
    run_on_loop([this] {
      timer_.cancel();
      const auto calls = std::exchange(calls_, {});
      for (const auto& [number, call] : calls) {
        call->rpc.reset();
        call->done({net::kGrpcCancelled, "this frontend is stopping"}, {});
      }
      channels_.clear();
    });
    server_->stop(Duration::zero());
    server_.reset();
    shards_.stop();
  }

  std::optional<HolderId> choose_holder(StreamId stream) const override {
    std::optional<HolderId> best;
    uint64_t highest = 0;
    const MutexLock lock(mutex_);
    for (const auto& [id, peer] : peers_) {
      // Rendezvous hashing (Thaler and Ravishankar 1998).
      const uint64_t score = mix64(stream.low ^ id);
      if (peer.well && (!best || score > highest)) {
        best = id;
        highest = score;
      }
    }
    return best;
  }

  void append(HolderId holder, const std::vector<JournalPart>& parts, net::Shard& shard,
              Appended done) override {
    pb::AppendRequest request;
    for (const JournalPart& part : parts) {
      pb::Part* out = request.add_parts();
      out->set_stream(to_bytes(part.stream));
      out->set_data(part.data);
      out->set_begins(part.place == Place::kBegin);
    }
    call({holder, kAppendPath, config_.ack_timeout, request.SerializeAsString()},
         [this, holder, &shard, done = std::move(done)](const net::GrpcOutcome& outcome,
                                                        std::string_view bytes) mutable {
           Result<std::vector<StreamId>> refused = std::vector<StreamId>();
           pb::AppendResponse response;
           if (!outcome.ok()) {
             refused = fail(holder, outcome);
           } else if (!response.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
             refused = fail(holder, {net::kGrpcInternal, "its answer does not parse"});
           } else {
             for (const std::string& stream : response.refused()) {
               refused->push_back(to_stream(stream).value_or(StreamId{}));
             }
           }
           answer(shard, std::move(done), std::move(refused));
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
    if (holder == own_id_ || address_of(holder).empty()) {
      Result<std::vector<std::string>> parts =
          holder == own_id_ ? shared_.read(stream) : std::vector<std::string>();
      if (parts->empty()) {
        parts = Error(Code::kNotFound, "not held here");
      }
      answer(shard, std::move(done), std::move(parts));
      return;
    }
    pb::FetchRequest request;
    request.set_stream(to_bytes(stream));
    call({holder, kFetchPath, kFetchDeadline, request.SerializeAsString()},
         [this, &shard, done = std::move(done)](const net::GrpcOutcome& outcome,
                                                std::string_view bytes) mutable {
           Result<std::vector<std::string>> parts = std::vector<std::string>();
           pb::FetchResponse response;
           if (!outcome.ok()) {
             parts = detail::to_fetch_error(outcome);
             series_.too_long.add(outcome.status == net::kGrpcResourceExhausted ? 1 : 0);
           } else if (!response.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
             parts = Error(Code::kUnavailable, "the holder's answer does not parse");
           } else {
             for (std::string& part : *response.mutable_parts()) {
               parts->push_back(std::move(part));
             }
           }
           answer(shard, std::move(done), std::move(parts));
         });
  }

 private:
  using Done = std::move_only_function<void(const net::GrpcOutcome&, std::string_view)>;
  struct Question {
    HolderId holder = 0;
    const char* path = nullptr;
    Duration deadline{};
    std::string request;
  };
  struct Call {
    Done done;
    std::unique_ptr<net::GrpcUnaryCall> rpc;
  };

  net::Shard& loop() { return shards_.shard(0); }
  template <typename Task>
  void run_on_loop(const Task& task) {
    STATOR_ASSERT(loop().run_and_wait([&task] { task(); }), "set-up and tear-down fit the inbox");
  }

  Status listen() {
    STATOR_TRY(client_tls_, net::load_client_tls(tls_));
    net::GrpcServerOptions options{.host = config_.host,
                                   .port = config_.port,
                                   .message_bytes_max = kMessageBytesMax,
                                   .calls_max = kCallsMax,
                                   .message_budget = std::make_shared<net::ByteBudget>(
                                       "journal_messages", kUnfinishedBytesMax, metrics_),
                                   .message_timeout = kMessageTimeout,
                                   .first_message_timeout = kMessageTimeout};
    STATOR_TRY(options.tls, net::load_server_tls(tls_));
    shards_.start();
    auto server = net::GrpcServer::listen(std::move(options), service_.methods(), loop(), metrics_);
    if (!server) {
      return Error(Code::kIo, fmt::format("journals: cannot listen on {}:{} (frontend.journal_host "
                                          "and frontend.journal_port): {}",
                                          config_.host, config_.port, server.error().message()));
    }
    server_ = std::move(*server);
    return {};
  }

  // On the loop.

  void tick(discovery::Discovery& discovery) {
    find_peers(discovery);
    {
      const MutexLock lock(shared_.mutex);
      shared_.store.expire(clock_.now());
      series_.held_bytes.set(static_cast<double>(shared_.store.bytes()));
      series_.held_streams.set(static_cast<double>(shared_.store.streams()));
      shared_.own.expire(clock_.now());
      series_.own_bytes.set(static_cast<double>(shared_.own.bytes()));
    }
    timer_ = loop().after(kPeersInterval, [this, &discovery] { tick(discovery); });
  }

  /// Who is listed is tried again, though it failed before.
  void find_peers(discovery::Discovery& discovery) {
    std::map<HolderId, Peer> found;
    for (const discovery::InstanceRecord& record :
         discovery.list({.namespace_name = {}, .component = "frontend", .endpoint = "journals"})) {
      const HolderId id = record.key.worker.value();
      if (id != own_id_ && found.size() < kPeersMax) {
        found[id] = {.address = record.address};
      }
    }
    {
      const MutexLock lock(mutex_);
      if (stopping_) {
        return;
      }
      peers_.swap(found);  // found: as it was
      series_.holders.set(static_cast<double>(peers_.size()));
    }
    std::erase_if(channels_, [&](const auto& entry) {
      const auto before = found.find(entry.first);
      return before == found.end() || before->second.address != address_of(entry.first);
    });
  }

  net::GrpcChannel& channel(HolderId holder, const std::string& address) {
    auto& channel = channels_[holder];
    if (channel == nullptr) {
      channel = net::GrpcChannel::open({.address = address,
                                        .tls = client_tls_,
                                        .server_name = config_.tls_name,
                                        .message_bytes_max = kMessageBytesMax,
                                        .retry_max = kPeersInterval / 2,
                                        .calls_max = kCallsMax},
                                       loop());
    }
    return *channel;
  }

  void begin(const Question& question, Done done) {
    const std::string address = address_of(question.holder);
    if (address.empty()) {
      done({net::kGrpcUnavailable, "the holder is not there"}, {});
      return;
    }
    const uint64_t number = ++last_call_;
    Call& call = *calls_.emplace(number, std::make_unique<Call>()).first->second;
    call.done = std::move(done);
    call.rpc = std::make_unique<net::GrpcUnaryCall>(
        channel(question.holder, address),
        net::GrpcChannelCall{.path = question.path, .deadline = question.deadline},
        question.request, [this, number](const net::GrpcOutcome& outcome, std::string_view bytes) {
          const std::unique_ptr<Call> ended = std::move(calls_.extract(number).mapped());
          ended->done(outcome, bytes);
        });
  }

  // Any thread.

  /// `done` is called on the loop, or here when that takes nothing any more.
  void call(Question question, Done done) {
    auto shared = std::make_shared<Done>(std::move(done));  // with a task that may be refused
    const bool posted = loop().post(
        [this, question = std::move(question), shared] { begin(question, std::move(*shared)); });
    if (!posted) {
      (*shared)({net::kGrpcUnavailable, "this frontend is stopping or far behind"}, {});
    }
  }

  /// Empty: it is not there any more.
  std::string address_of(HolderId id) const {
    const MutexLock lock(mutex_);
    const auto known = peers_.find(id);
    return known == peers_.end() ? std::string() : known->second.address;
  }

  Error fail(HolderId holder, const net::GrpcOutcome& outcome) {
    const MutexLock lock(mutex_);
    const auto peer = peers_.find(holder);
    if (peer != peers_.end()) {
      series_.call_failures.add();
      log::warn(kLogTarget, "a frontend that keeps our journals did not answer",
                {{"address", peer->second.address}, {"error", outcome.message}});
      peer->second.well = false;
    }
    return detail::to_fetch_error(outcome);
  }

  template <typename Done, typename Outcome>
  static void answer(net::Shard& shard, Done done, Outcome outcome) {
    auto shared = std::make_shared<Outcome>(std::move(outcome));  // tasks are copied
    net::post_wakeup(shard, [done = std::move(done), shared] { done(*shared); });
  }

  const JournalHubConfig config_;
  const std::optional<net::TlsFiles> tls_;
  const Clock& clock_;
  Metrics& metrics_;
  const HolderId own_id_;
  SharedStore shared_;
  const HubMetrics series_;
  HolderService service_;
  std::shared_ptr<const net::ClientTls> client_tls_;  // from listen() on; shared with channels
  std::unique_ptr<discovery::Registration> registration_;

  mutable Mutex mutex_;
  std::map<HolderId, Peer> peers_ STATOR_GUARDED_BY(mutex_);
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;

  SystemClock loop_clock_;  // only paces the loop
  net::ShardSet shards_;
  std::unique_ptr<net::GrpcServer> server_;  // from listen() to stop()

  // The loop's.
  std::map<HolderId, std::unique_ptr<net::GrpcChannel>> channels_;  // made at the first call
  std::map<uint64_t, std::unique_ptr<Call>> calls_;  // by number; bounded by the channels
  uint64_t last_call_ = 0;
  net::Timer timer_;
};

}  // namespace

std::unique_ptr<JournalHub> JournalHub::create(const JournalHubConfig& config,
                                               std::optional<net::TlsFiles> tls, const Clock& clock,
                                               Metrics& metrics) {
  return std::make_unique<GrpcJournalHub>(config, std::move(tls), clock, metrics);
}

}  // namespace stator::continuity
