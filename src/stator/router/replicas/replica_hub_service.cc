// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <utility>
#include <vector>

#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/core/random.h"
#include "stator/net/thread.h"
#include "stator/proto/router/v1/replica.grpc.pb.h"
#include "stator/router/replica_log.h"
#include "stator/router/replica_view.h"
#include "stator/router/replicas/replica_hub.h"
#include "stator/router/replicas/replica_wire.h"
#include "stator/session/rpc_credentials.h"

namespace stator::router {
namespace {

using namespace std::chrono_literals;
namespace pb = router::v1;

constexpr std::string_view kLogTarget = "router::replicas";
constexpr int kMessageBytesMax = 96 << 20;  // a snapshot of 32 MiB of hashes with long names
constexpr Duration kPeersInterval = 1s;     // how often discovery is asked
constexpr Duration kFirstInterval = 100ms;  // while we start, and when somebody unknown asks
constexpr Duration kStarting = 3s;
constexpr Duration kHold = 250ms;          // of a question without news; digests are as old at most
constexpr Duration kCallDeadline = 750ms;  // a peer that is slower is not there
constexpr Duration kRetryInterval = 1s;    // after a failed call
constexpr size_t kPeersMax = 256;
constexpr size_t kHeldMax = kPeersMax;  // questions beyond it are answered at once

/// A question that waits for news. Its pointers are good until it is answered.
struct Held {
  uint64_t from_sequence = 0;
  pb::PullResponse* response = nullptr;
  grpc::ServerUnaryReactor* reactor = nullptr;
  TimePoint until{};
};

/// Our bookings and who waits for them, shared by all that make, read or tell them.
struct Shared {
  explicit Shared(uint64_t router_id) : log(router_id) {}
  /// After a change of the log.
  void tell() STATOR_REQUIRES(mutex) {
    if (!news && !held.empty()) {
      news = true;
      wake.notify_all();
    }
  }

  Mutex mutex;
  std::condition_variable_any wake;  // the hub's thread
  router::ReplicaLog log STATOR_GUARDED_BY(mutex);
  std::vector<Held> held STATOR_GUARDED_BY(mutex);  // at most kHeldMax
  bool running STATOR_GUARDED_BY(mutex) = false;    // the thread answers what is held
  bool news STATOR_GUARDED_BY(mutex) = false;       // since it last did
  bool answered STATOR_GUARDED_BY(mutex) = false;   // a question of ours
  // When the thread wakes up by itself; who needs it sooner sets `answered`.
  TimePoint asleep_until STATOR_GUARDED_BY(mutex){};
  FlatSet<uint64_t> known STATOR_GUARDED_BY(mutex);      // routers that we ask, too
  bool stranger_asked STATOR_GUARDED_BY(mutex) = false;  // one that we do not know of yet
};

class ModelAnnouncer final : public router::LoadAnnouncer {
 public:
  ModelAnnouncer(std::shared_ptr<Shared> shared, std::string model, const Counter& untold)
      : shared_(std::move(shared)), model_(std::move(model)), untold_(untold) {}

  uint64_t booked(const router::Booking& booking) override {
    router::ReplicaBooking told{.model = model_,
                                .worker = booking.worker,
                                .prompt_tokens = booking.prompt_tokens,
                                .prefill_tokens = booking.prefill_tokens,
                                .block_size = booking.block_size,
                                .expected_output_tokens = booking.expected_output_tokens,
                                .sequences = {booking.prompt.begin(), booking.prompt.end()}};
    const MutexLock lock(shared_->mutex);
    const uint64_t number = shared_->log.add(std::move(told));
    untold_.add(number == 0 ? 1 : 0);
    shared_->tell();
    return number;
  }
  void prefill_completed(uint64_t number) override {
    const MutexLock lock(shared_->mutex);
    shared_->log.mark_prefill_completed(number);
    shared_->tell();
  }
  void freed(uint64_t number) override {
    const MutexLock lock(shared_->mutex);
    shared_->log.free(number);
    shared_->tell();
  }

 private:
  const std::shared_ptr<Shared> shared_;  // shared with the hub
  const std::string model_;
  const Counter untold_;
};

/// Answers the others' questions. gRPC's threads.
class PullService final : public pb::ReplicaSync::CallbackService {
 public:
  PullService(std::shared_ptr<Shared> shared, std::vector<std::string> allowed_callers,
              const Clock& clock, Metrics& metrics)
      : shared_(std::move(shared)),
        allowed_callers_(std::move(allowed_callers)),
        clock_(clock),
        refused_callers_(metrics.counter("stator_router_replica_refused_callers_total",
                                         "questions of certified processes that may not ask")) {}

  grpc::ServerUnaryReactor* Pull(grpc::CallbackServerContext* call, const pb::PullRequest* request,
                                 pb::PullResponse* response) override {
    grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
    if (grpc::Status status = admit(*call, request->router_id()); !status.ok()) {
      reactor->Finish(std::move(status));
      return reactor;
    }
    router::ReplicaUpdate update;
    {
      const MutexLock lock(shared_->mutex);
      if (!shared_->stranger_asked && !shared_->known.contains(request->router_id())) {
        shared_->stranger_asked = true;
        wake_thread();
      }
      const bool news = shared_->log.sequence() != request->from_sequence();
      if (!news && request->hold_ms() > 0 && shared_->running && shared_->held.size() < kHeldMax) {
        const Duration hold =
            std::min<Duration>(kHold, std::chrono::milliseconds(request->hold_ms()));
        const TimePoint until = clock_.now() + hold;
        shared_->held.push_back({request->from_sequence(), response, reactor, until});
        if (until < shared_->asleep_until) {
          wake_thread();
        }
        return reactor;
      }
      update = shared_->log.read(request->from_sequence());
    }
    encode(update, *response);
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  void wake_thread() STATOR_REQUIRES(shared_->mutex) {
    shared_->answered = true;
    shared_->wake.notify_all();
  }

  /// One that may not ask comes again every second: it is counted each time and logged once.
  grpc::Status admit(const grpc::CallbackServerContext& call, uint64_t router_id) {
    grpc::Status status = session::check_caller(*call.auth_context(), allowed_callers_);
    if (!status.ok()) {
      refused_callers_.add();
      const MutexLock lock(refused_mutex_);
      if (refused_.size() < kPeersMax && refused_.insert(router_id).second) {
        log::warn(kLogTarget, "another router is not allowed to ask",
                  {{"peer", call.peer()}, {"router_id", router_id}});
      }
    }
    return status;
  }

  const std::shared_ptr<Shared> shared_;  // shared with the hub
  const std::vector<std::string> allowed_callers_;
  const Clock& clock_;
  const Counter refused_callers_;
  Mutex refused_mutex_;
  FlatSet<uint64_t> refused_ STATOR_GUARDED_BY(refused_mutex_);  // logged; at most kPeersMax
};

/// A question of ours under way.
struct Question {
  grpc::ClientContext context;
  pb::PullRequest request;
  pb::PullResponse response;
  grpc::Status status;
  bool done = false;  // guarded by Shared::mutex
};

/// One other router. The hub's thread only.
struct AskedPeer {
  AskedPeer(const std::shared_ptr<grpc::Channel>& channel, router::ReplicaView::Book book,
            Duration expiry)
      : stub(pb::ReplicaSync::NewStub(channel)), view(std::move(book), expiry) {}
  std::unique_ptr<pb::ReplicaSync::Stub> stub;
  router::ReplicaView view;
  router::ReplicaView::Counts counted;
  std::unique_ptr<Question> question;  // null: none is under way
  TimePoint next_call{};
  bool listed = true;
  bool answers = true;  ///< nothing else was logged of it
};

struct ReplicaSeries {
  explicit ReplicaSeries(Metrics& metrics)
      : events(metrics.counter("stator_router_replica_events_total",
                               "bookings, first tokens and ends heard of other routers")),
        gaps(metrics.counter("stator_router_replica_gaps_total",
                             "times events of another router were missing")),
        snapshots(metrics.counter("stator_router_replica_snapshots_total",
                                  "whole states taken from other routers")),
        divergences(metrics.counter("stator_router_replica_divergences_total",
                                    "times another router's digest differed from ours of it")),
        expiries(metrics.counter("stator_router_replica_expiries_total",
                                 "times a silent router's bookings were forgotten")),
        failures(metrics.counter("stator_router_replica_call_failures_total",
                                 "questions that another router did not answer")),
        untold(metrics.counter("stator_router_replica_untold_total",
                               "bookings the others do not hear of, as too many are live")),
        peers(metrics.gauge("stator_router_replica_peers", "other routers known")),
        bookings(metrics.gauge("stator_router_replica_bookings", "their bookings counted here")),
        age(metrics.gauge("stator_router_replica_age_seconds",
                          "how long the one heard of least has been silent")) {}
  Counter events, gaps, snapshots, divergences, expiries, failures, untold;
  Gauge peers, bookings, age;
};

class GrpcReplicaHub final : public ReplicaHub {
 public:
  GrpcReplicaHub(const router::ReplicaConfig& config, std::optional<net::TlsFiles> tls,
                 const Clock& clock, Metrics& metrics)
      : config_(config),
        tls_(std::move(tls)),
        clock_(clock),
        // 53 bits, never zero: it is an instance id in discovery, too.
        router_id_((Random::from_entropy().next() >> 11) | 1),
        shared_(std::make_shared<Shared>(router_id_)),
        service_(shared_, tls_ ? tls_->allowed_callers : std::vector<std::string>(), clock,
                 metrics),
        series_(metrics) {}
  ~GrpcReplicaHub() override { stop(); }

  std::shared_ptr<router::LoadAnnouncer> announcer(const std::string& model) override {
    return std::make_shared<ModelAnnouncer>(shared_, model, series_.untold);
  }

  uint64_t router_id() const override { return router_id_; }
  std::string address() const override { return fmt::format("{}:{}", config_.host, port_); }

  Status listen() override {
    STATOR_TRY(channel_credentials_, session::channel_credentials(tls_));
    STATOR_TRY(const auto credentials, session::server_credentials(tls_));
    grpc::ServerBuilder builder;
    const std::string wanted = fmt::format("{}:{}", config_.host, config_.port);
    builder.AddListeningPort(wanted, credentials, &port_);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.RegisterService(&service_);
    builder.SetMaxSendMessageSize(kMessageBytesMax);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return Error(Code::kIo, fmt::format("replicas: cannot listen on {}", wanted));
    }
    return {};
  }

  void start(Wiring wiring) override {
    wiring_ = std::move(wiring);
    {
      const MutexLock lock(shared_->mutex);
      shared_->running = true;
    }
    thread_ = net::Thread("replica-sync", [this] { run(); });
  }

  void stop() override {
    {
      const MutexLock lock(shared_->mutex);
      stopping_ = true;
    }
    shared_->wake.notify_all();
    thread_.join();
    end_questions();
    peers_.clear();
    if (server_ != nullptr) {
      server_->Shutdown(gpr_time_from_millis(0, GPR_TIMESPAN));
      server_.reset();
    }
  }

 private:
  void run() {
    TimePoint looked{};
    TimePoint look_again{};
    const TimePoint started = clock_.now();
    do {
      const TimePoint now = clock_.now();
      // Who is found sooner than discovery tells us asks us.
      look_again = take_stranger() ? std::min(look_again, looked + kFirstInterval) : look_again;
      if (now >= look_again) {
        find_peers();
        looked = now;
        look_again = now + (now - started < kStarting ? kFirstInterval : kPeersInterval);
      }
      for (auto& [id, peer] : peers_) {
        if (peer.question != nullptr && is_done(*peer.question)) {
          take_answer(id, peer);
        }
        if (peer.question == nullptr && peer.listed && now >= peer.next_call) {
          ask(peer);
        }
        peer.view.place_waiting();
        peer.view.expire(now);
        count(peer);
      }
      std::erase_if(peers_, [](const auto& entry) {
        const AskedPeer& peer = entry.second;
        return !peer.listed && peer.question == nullptr && peer.view.size() == 0;
      });
      report();
      answer_held(now, Which::kDue);
    } while (wait(look_again));
    {
      const MutexLock lock(shared_->mutex);
      shared_->running = false;
    }
    answer_held(clock_.now(), Which::kAll);
  }

  bool take_stranger() {
    const MutexLock lock(shared_->mutex);
    return std::exchange(shared_->stranger_asked, false);
  }

  /// Until there is something to do; false when the hub is to stop.
  bool wait(TimePoint until) {
    for (const auto& [id, peer] : peers_) {
      if (peer.question == nullptr && peer.listed) {
        until = std::min(until, peer.next_call);
      }
    }
    MutexLock lock(shared_->mutex);
    for (const Held& held : shared_->held) {
      until = std::min(until, held.until);
    }
    shared_->asleep_until = until;
    const Duration left = std::max<Duration>(Duration(), until - clock_.now());
    shared_->wake.wait_for(lock, left, [this]() STATOR_REQUIRES(shared_->mutex) {
      return stopping_ || shared_->answered || shared_->news;
    });
    shared_->answered = false;
    return !stopping_;
  }

  enum class Which : uint8_t { kDue, kAll };
  /// Those for whom there is news, or who have waited long enough.
  void answer_held(TimePoint now, Which which) {
    std::vector<std::pair<Held, router::ReplicaUpdate>> answers;
    {
      const MutexLock lock(shared_->mutex);
      shared_->news = false;
      std::erase_if(shared_->held, [&](const Held& held) STATOR_REQUIRES(shared_->mutex) {
        if (which == Which::kDue && now < held.until &&
            shared_->log.sequence() == held.from_sequence) {
          return false;
        }
        answers.emplace_back(held, shared_->log.read(held.from_sequence));
        return true;
      });
    }
    for (const auto& [held, update] : answers) {
      encode(update, *held.response);
      held.reactor->Finish(grpc::Status::OK);
    }
  }

  void find_peers() {
    for (auto& [id, peer] : peers_) {
      peer.listed = false;
    }
    for (const Peer& found : wiring_.peers()) {
      if (found.key == router_id_) {
        continue;
      }
      const auto known = peers_.find(found.key);
      if (known != peers_.end()) {
        known->second.listed = true;
      } else if (peers_.size() < kPeersMax) {
        peers_.try_emplace(found.key, connect(found.address), wiring_.book, config_.expiry);
        log::info(kLogTarget, "found another router",
                  {{"peer", found.key}, {"address", found.address}});
      }
    }
    {
      const MutexLock lock(shared_->mutex);
      shared_->known.clear();
      for (const auto& [id, peer] : peers_) {
        shared_->known.insert(id);
      }
    }
    if (wiring_.on_stale) {
      wiring_.on_stale(!peers_.empty());
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

  bool is_done(const Question& question) const {
    const MutexLock lock(shared_->mutex);
    return question.done;
  }

  void ask(AskedPeer& peer) {
    peer.question = std::make_unique<Question>();
    Question& question = *peer.question;
    const auto in_ms = [](Duration duration) {
      return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
    };
    question.context.set_deadline(gpr_time_add(
        gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(in_ms(kCallDeadline), GPR_TIMESPAN)));
    question.request.set_router_id(router_id_);
    question.request.set_from_sequence(peer.view.next_request());
    question.request.set_hold_ms(static_cast<uint32_t>(in_ms(kHold)));
    peer.stub->async()->Pull(&question.context, &question.request, &question.response,
                             [shared = shared_, &question](grpc::Status status) {
                               const MutexLock lock(shared->mutex);
                               question.status = std::move(status);
                               question.done = true;
                               shared->answered = true;
                               shared->wake.notify_all();
                             });
  }

  void take_answer(uint64_t id, AskedPeer& peer) {
    const std::unique_ptr<Question> question = std::move(peer.question);
    auto update = question->status.ok()
                      ? decode(question->response)
                      : Result<router::ReplicaUpdate>(
                            Error(Code::kUnavailable, question->status.error_message()));
    const TimePoint now = clock_.now();
    if (!update || update->router_id == router_id_) {
      series_.failures.add();
      log_silence(id, peer, update ? "it is us" : update.error().message());
      peer.next_call = now + kRetryInterval;
      return;
    }
    peer.answers = true;
    peer.view.take(*update, now);
    const bool has_more = peer.view.next_request() != update->sequence;
    peer.next_call = has_more ? now : now + config_.interval;
  }

  /// A warning for the first of a series of failures.
  static void log_silence(uint64_t id, AskedPeer& peer, std::string_view why) {
    const auto log = std::exchange(peer.answers, false) ? log::warn : log::debug;
    log(kLogTarget, "no news of another router", {{"peer", id}, {"error", why}});
  }

  /// After the thread: nothing may be under way when peers go.
  void end_questions() {
    for (auto& [id, peer] : peers_) {
      if (peer.question != nullptr) {
        peer.question->context.TryCancel();
      }
    }
    MutexLock lock(shared_->mutex);
    shared_->wake.wait(lock, [this]() STATOR_REQUIRES(shared_->mutex) {
      return std::ranges::all_of(peers_, [](const auto& entry) {
        return entry.second.question == nullptr || entry.second.question->done;
      });
    });
  }

  void count(AskedPeer& peer) const {
    const router::ReplicaView::Counts& now = peer.view.counts();
    series_.events.add(now.events - peer.counted.events);
    series_.gaps.add(now.gaps - peer.counted.gaps);
    series_.snapshots.add(now.snapshots - peer.counted.snapshots);
    series_.divergences.add(now.divergences - peer.counted.divergences);
    series_.expiries.add(now.expired - peer.counted.expired);
    peer.counted = now;
  }

  void report() {
    size_t bookings = 0;
    Duration age{};
    for (const auto& [id, peer] : peers_) {
      bookings += peer.view.size();
      age = std::max(age, peer.view.silent_for(clock_.now()));
    }
    series_.peers.set(static_cast<double>(peers_.size()));
    series_.bookings.set(static_cast<double>(bookings));
    series_.age.set(std::chrono::duration<double>(age).count());
  }

  const router::ReplicaConfig config_;
  const std::optional<net::TlsFiles> tls_;
  const Clock& clock_;
  const uint64_t router_id_;
  const std::shared_ptr<Shared> shared_;  // shared with announcers
  PullService service_;
  const ReplicaSeries series_;
  std::shared_ptr<grpc::ChannelCredentials> channel_credentials_;  // from listen() on
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  Wiring wiring_;
  std::map<uint64_t, AskedPeer> peers_;  // the thread's; by router id, at most kPeersMax

  bool stopping_ STATOR_GUARDED_BY(shared_->mutex) = false;
  net::Thread thread_;
};

}  // namespace

std::unique_ptr<ReplicaHub> ReplicaHub::create(const router::ReplicaConfig& config,
                                               std::optional<net::TlsFiles> tls, const Clock& clock,
                                               Metrics& metrics) {
  return std::make_unique<GrpcReplicaHub>(config, std::move(tls), clock, metrics);
}

}  // namespace stator::router
