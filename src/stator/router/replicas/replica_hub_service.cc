// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/core/random.h"
#include "stator/net/grpc_callers.h"
#include "stator/net/grpc_channel.h"
#include "stator/net/grpc_server.h"
#include "stator/net/grpc_unary.h"
#include "stator/net/shard.h"
#include "stator/net/wakeup.h"
#include "stator/proto/router/v1/replica.pb.h"
#include "stator/router/replica_log.h"
#include "stator/router/replica_view.h"
#include "stator/router/replicas/replica_hub.h"
#include "stator/router/replicas/replica_wire.h"

namespace stator::router {
namespace {

using namespace std::chrono_literals;
namespace pb = router::v1;

constexpr std::string_view kLogTarget = "router::replicas";
constexpr const char* kPath = "/stator.router.v1.ReplicaSync/Pull";
constexpr size_t kQuestionBytesMax = 4096;
constexpr size_t kMessageBytesMax = 96 << 20;  // a snapshot of 32 MiB of hashes with long names
constexpr Duration kPeersInterval = 1s;        // how often discovery is asked
constexpr Duration kFirstInterval = 100ms;     // while we start, and when somebody unknown asks
constexpr Duration kStarting = 3s;
constexpr Duration kHold = 250ms;          // of a question without news; digests are as old at most
constexpr Duration kCallDeadline = 750ms;  // a peer that is slower is not there
constexpr Duration kRetryInterval = 1s;    // after a failed call
constexpr Duration kSilence = 2s;  // of a connection after such a call; then there is a new one
constexpr size_t kPeersMax = 256;
constexpr size_t kHeldMax = kPeersMax;  // questions beyond it are answered at once

/// Our bookings, shared by all that make or read them.
struct Shared {
  explicit Shared(uint64_t router_id) : log(router_id) {}
  /// After a change of the log.
  void tell() STATOR_REQUIRES(mutex) {
    if (waited_for && !std::exchange(news, true)) {
      net::post_wakeup(*loop, on_news);
    }
  }

  Mutex mutex;
  router::ReplicaLog log STATOR_GUARDED_BY(mutex);
  bool waited_for STATOR_GUARDED_BY(mutex) = false;  // the loop holds questions
  bool news STATOR_GUARDED_BY(mutex) = false;        // and is on its way to answer them
  net::Shard* loop = nullptr;                        // set before anybody waits
  std::function<void()> on_news;                     // on the loop
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

/// A question that waits for news.
struct Held {
  uint64_t from_sequence = 0;
  std::shared_ptr<net::GrpcServerCall> call;  // shared with the server
  TimePoint until{};
};

/// One other router.
struct AskedPeer {
  AskedPeer(std::unique_ptr<net::GrpcChannel> channel_in, router::ReplicaView::Book book,
            Duration expiry)
      : channel(std::move(channel_in)), view(std::move(book), expiry) {}
  std::unique_ptr<net::GrpcChannel> channel;
  router::ReplicaView view;
  router::ReplicaView::Counts counted;
  std::unique_ptr<net::GrpcUnaryCall> question;  // null: none is under way
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

/// On one loop: whoever books only adds to the log, and wakes it when a question waits.
class GrpcReplicaHub final : public ReplicaHub {
 public:
  GrpcReplicaHub(const router::ReplicaConfig& config, std::optional<net::TlsFiles> tls,
                 const Clock& clock, Metrics& metrics)
      : config_(config),
        tls_(std::move(tls)),
        clock_(clock),
        metrics_(metrics),
        // 53 bits, never zero: it is an instance id in discovery, too.
        router_id_((Random::from_entropy().next() >> 11) | 1),
        shared_(std::make_shared<Shared>(router_id_)),
        callers_(tls_, metrics.counter("stator_router_replica_refused_callers_total",
                                       "questions of certified processes that may not ask")),
        series_(metrics),
        shards_(1, loop_clock_, metrics) {
    shared_->loop = &loop();
    shared_->on_news = [this] { turn(); };
  }
  GrpcReplicaHub(const GrpcReplicaHub&) = delete;
  GrpcReplicaHub& operator=(const GrpcReplicaHub&) = delete;
  ~GrpcReplicaHub() override { stop(); }

  std::shared_ptr<router::LoadAnnouncer> announcer(const std::string& model) override {
    return std::make_shared<ModelAnnouncer>(shared_, model, series_.untold);
  }

  uint64_t router_id() const override { return router_id_; }
  std::string address() const override { return fmt::format("{}:{}", config_.host, port_); }

  Status listen() override {
    STATOR_TRY(client_tls_, net::load_client_tls(tls_));
    net::GrpcServerOptions options{
        .host = config_.host, .port = config_.port, .message_bytes_max = kQuestionBytesMax};
    STATOR_TRY(options.tls, net::load_server_tls(tls_));
    net::GrpcServer::Methods methods;
    methods[kPath] = net::serve_unary<pb::PullRequest>(
        [this](const auto& call, pb::PullRequest& request) { on_question(call, request); });
    shards_.start();
    auto server = net::GrpcServer::listen(std::move(options), std::move(methods), loop(), metrics_);
    if (!server) {
      return Error(Code::kIo, fmt::format("replicas: cannot listen on {}:{}: {}", config_.host,
                                          config_.port, server.error().message()));
    }
    server_ = std::move(*server);
    port_ = server_->port();
    return {};
  }

  void start(Wiring wiring) override {
    run_on_loop([&] {
      wiring_ = std::move(wiring);
      running_ = true;
      started_ = clock_.now();
      turn();
    });
  }

  void stop() override {
    if (server_ == nullptr) {
      return;
    }
    run_on_loop([this] {
      running_ = false;
      timer_.cancel();
      peers_.clear();
      answer_held(clock_.now(), Which::kAll);
    });
    server_->stop(Duration::zero());
    server_.reset();
    shards_.stop();
  }

 private:
  net::Shard& loop() { return shards_.shard(0); }
  template <typename Task>
  void run_on_loop(const Task& task) {
    STATOR_ASSERT(loop().run_and_wait([&task] { task(); }), "set-up and tear-down fit the inbox");
  }

  // Everything below on the loop.

  /// Does what is due, and says when it wants to be called again.
  void turn() {
    if (!running_) {
      return;
    }
    const TimePoint now = clock_.now();
    if (now >= look_again_) {
      find_peers();
      looked_ = now;
      look_again_ = now + (now - started_ < kStarting ? kFirstInterval : kPeersInterval);
    }
    for (auto& [id, peer] : peers_) {
      if (peer.question == nullptr && peer.listed && now >= peer.next_call) {
        ask(id, peer);
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
    set_timer();
  }

  void set_timer() {
    TimePoint until = look_again_;
    for (const auto& [id, peer] : peers_) {
      if (peer.question == nullptr && peer.listed) {
        until = std::min(until, peer.next_call);
      }
    }
    for (const Held& held : held_) {
      until = std::min(until, held.until);
    }
    const Duration left = std::max<Duration>(Duration(), until - clock_.now());
    timer_ = loop().after(left, [this] { turn(); });
  }

  // The others' questions.

  void on_question(const std::shared_ptr<net::GrpcServerCall>& call,
                   const pb::PullRequest& request) {
    if (!admit(*call, request.router_id())) {
      return;
    }
    const bool stranger = running_ && !peers_.contains(request.router_id());
    router::ReplicaUpdate update;
    {
      const MutexLock lock(shared_->mutex);
      const bool news = shared_->log.sequence() != request.from_sequence();
      if (!news && request.hold_ms() > 0 && running_ && held_.size() < kHeldMax) {
        const Duration hold =
            std::min<Duration>(kHold, std::chrono::milliseconds(request.hold_ms()));
        held_.push_back({request.from_sequence(), call, clock_.now() + hold});
        shared_->waited_for = true;
      } else {
        update = shared_->log.read(request.from_sequence());
      }
    }
    const bool waits = !held_.empty() && held_.back().call == call;
    if (!waits) {
      answer(*call, update);
    }
    if (stranger) {  // who is found sooner than discovery tells us asks us
      look_again_ = std::min(look_again_, looked_ + kFirstInterval);
    }
    if (stranger || waits) {
      set_timer();
    }
  }

  /// One that may not ask comes again every second: it is counted each time and logged once.
  bool admit(net::GrpcServerCall& call, uint64_t router_id) {
    const bool admitted = callers_.admit(call);
    if (!admitted && refused_.size() < kPeersMax && refused_.insert(router_id).second) {
      log::warn(kLogTarget, "another router is not allowed to ask",
                {{"peer", call.caller().address}, {"router_id", router_id}});
    }
    return admitted;
  }

  static void answer(net::GrpcServerCall& call, const router::ReplicaUpdate& update) {
    pb::PullResponse response;
    encode(update, response);
    net::answer_unary(call, response);
  }

  enum class Which : uint8_t { kDue, kAll };
  /// Those for whom there is news, or who have waited long enough.
  void answer_held(TimePoint now, Which which) {
    std::vector<std::pair<Held, router::ReplicaUpdate>> answers;
    {
      const MutexLock lock(shared_->mutex);
      shared_->news = false;
      std::erase_if(held_, [&](const Held& held) STATOR_REQUIRES(shared_->mutex) {
        if (which == Which::kDue && now < held.until &&
            shared_->log.sequence() == held.from_sequence) {
          return false;
        }
        answers.emplace_back(held, shared_->log.read(held.from_sequence));
        return true;
      });
      shared_->waited_for = !held_.empty();
    }
    for (const auto& [held, update] : answers) {
      answer(*held.call, update);
    }
  }

  // Our questions.

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
    if (wiring_.on_stale) {
      wiring_.on_stale(!peers_.empty());
    }
  }

  std::unique_ptr<net::GrpcChannel> connect(const std::string& address) {
    return net::GrpcChannel::open({.address = address,
                                   .tls = client_tls_,
                                   .server_name = config_.tls_name,
                                   .message_bytes_max = kMessageBytesMax,
                                   .retry_max = kRetryInterval / 2,
                                   .keepalive_timeout = kSilence},
                                  loop());
  }

  void ask(uint64_t id, AskedPeer& peer) {
    pb::PullRequest request;
    request.set_router_id(router_id_);
    request.set_from_sequence(peer.view.next_request());
    request.set_hold_ms(static_cast<uint32_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(kHold).count()));
    peer.question = std::make_unique<net::GrpcUnaryCall>(
        *peer.channel, net::GrpcChannelCall{.path = kPath, .deadline = kCallDeadline},
        request.SerializeAsString(),
        [this, id](const net::GrpcOutcome& outcome, std::string_view bytes) {
          take_answer(id, peers_.at(id), outcome, bytes);
          turn();
        });
  }

  void take_answer(uint64_t id, AskedPeer& peer, const net::GrpcOutcome& outcome,
                   std::string_view bytes) {
    const auto question = std::move(peer.question);  // told of right now
    pb::PullResponse response;
    auto update = Result<router::ReplicaUpdate>(Error(Code::kUnavailable, outcome.message));
    if (outcome.ok()) {
      update = response.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))
                   ? decode(response)
                   : Error(Code::kCorrupt, "the answer does not parse");
    }
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
  Metrics& metrics_;
  const uint64_t router_id_;
  const std::shared_ptr<Shared> shared_;  // shared with announcers
  const net::GrpcCallers callers_;
  const ReplicaSeries series_;
  std::shared_ptr<const net::ClientTls> client_tls_;  // from listen() on; shared with channels

  SystemClock loop_clock_;  // only paces the loop
  net::ShardSet shards_;
  std::unique_ptr<net::GrpcServer> server_;  // from listen() to stop()
  uint16_t port_ = 0;

  // The loop's.
  Wiring wiring_;
  bool running_ = false;
  TimePoint started_{};
  TimePoint looked_{};
  TimePoint look_again_{};
  std::map<uint64_t, AskedPeer> peers_;  // by router id, at most kPeersMax
  std::vector<Held> held_;               // at most kHeldMax
  FlatSet<uint64_t> refused_;            // logged; at most kPeersMax
  net::Timer timer_;
};

}  // namespace

std::unique_ptr<ReplicaHub> ReplicaHub::create(const router::ReplicaConfig& config,
                                               std::optional<net::TlsFiles> tls, const Clock& clock,
                                               Metrics& metrics) {
  return std::make_unique<GrpcReplicaHub>(config, std::move(tls), clock, metrics);
}

}  // namespace stator::router
