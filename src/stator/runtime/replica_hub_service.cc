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
#include "stator/runtime/detail/replica_wire.h"
#include "stator/runtime/replica_hub.h"

namespace stator::runtime {
namespace {

using namespace std::chrono_literals;
namespace pb = router::v1;
using detail::decode;
using detail::encode;

constexpr std::string_view kLogTarget = "runtime::replicas";
constexpr int kMessageBytesMax = 64 << 20;
constexpr Duration kPeersInterval = 1s;    // how often discovery is asked
constexpr Duration kCallDeadline = 500ms;  // a peer that is slower holds up the others no longer
constexpr Duration kRetryInterval = 1s;    // after a failed call
constexpr int kPullsPerTurnMax = 8;        // of update_max events each
constexpr size_t kPeersMax = 256;

/// Our bookings, shared by all that make or read them.
struct SharedLog {
  explicit SharedLog(uint64_t router_id) : log(router_id) {}
  Mutex mutex;
  router::ReplicaLog log STATOR_GUARDED_BY(mutex);
};

class ModelAnnouncer final : public router::LoadAnnouncer {
 public:
  ModelAnnouncer(std::shared_ptr<SharedLog> shared, std::string model)
      : shared_(std::move(shared)), model_(std::move(model)) {}

  uint64_t booked(const router::Booking& booking) override {
    router::ReplicaBooking told{.model = model_,
                                .worker = booking.worker,
                                .prompt_tokens = booking.prompt_tokens,
                                .prefill_tokens = booking.prefill_tokens,
                                .block_size = booking.block_size,
                                .expected_output_tokens = booking.expected_output_tokens,
                                .sequences = {booking.prompt.begin(), booking.prompt.end()}};
    const MutexLock lock(shared_->mutex);
    return shared_->log.add(std::move(told));
  }
  void prefill_completed(uint64_t number) override {
    const MutexLock lock(shared_->mutex);
    shared_->log.mark_prefill_completed(number);
  }
  void freed(uint64_t number) override {
    const MutexLock lock(shared_->mutex);
    shared_->log.free(number);
  }

 private:
  const std::shared_ptr<SharedLog> shared_;  // shared with the hub
  const std::string model_;
};

class PullService final : public pb::ReplicaSync::CallbackService {
 public:
  explicit PullService(std::shared_ptr<SharedLog> shared) : shared_(std::move(shared)) {}

  grpc::ServerUnaryReactor* Pull(grpc::CallbackServerContext* call, const pb::PullRequest* request,
                                 pb::PullResponse* response) override {
    router::ReplicaUpdate update;
    {
      const MutexLock lock(shared_->mutex);
      update = shared_->log.read(request->from_sequence());
    }
    encode(update, *response);
    grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const std::shared_ptr<SharedLog> shared_;  // shared with the hub
};

/// One other router. The hub's thread only.
struct AskedPeer {
  AskedPeer(const std::string& address, router::ReplicaView::Book book, Duration expiry)
      : stub(pb::ReplicaSync::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
        view(std::move(book), expiry) {}
  std::unique_ptr<pb::ReplicaSync::Stub> stub;
  router::ReplicaView view;
  router::ReplicaView::Counts counted;
  TimePoint next_call{};
  bool listed = true;
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
        peers(metrics.gauge("stator_router_replica_peers", "other routers known")),
        bookings(metrics.gauge("stator_router_replica_bookings", "their bookings counted here")),
        age(metrics.gauge("stator_router_replica_age_seconds",
                          "how long the one heard of least has been silent")) {}
  Counter events, gaps, snapshots, divergences, expiries, failures;
  Gauge peers, bookings, age;
};

class GrpcReplicaHub final : public ReplicaHub {
 public:
  GrpcReplicaHub(const router::ReplicaConfig& config, const Clock& clock, Metrics& metrics)
      : config_(config),
        clock_(clock),
        // 53 bits, never zero: it is an instance id in discovery, too.
        router_id_((Random::from_entropy().next() >> 11) | 1),
        shared_(std::make_shared<SharedLog>(router_id_)),
        service_(shared_),
        series_(metrics) {}
  ~GrpcReplicaHub() override { stop(); }

  std::shared_ptr<router::LoadAnnouncer> announcer(const std::string& model) override {
    return std::make_shared<ModelAnnouncer>(shared_, model);
  }

  uint64_t router_id() const override { return router_id_; }
  std::string address() const override { return fmt::format("{}:{}", config_.host, port_); }

  Status listen() override {
    grpc::ServerBuilder builder;
    const std::string wanted = fmt::format("{}:{}", config_.host, config_.port);
    builder.AddListeningPort(wanted, grpc::InsecureServerCredentials(), &port_);
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
    thread_ = net::Thread("replica-sync", [this] { run(); });
  }

  void stop() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
    peers_.clear();
    if (server_ != nullptr) {
      server_->Shutdown(gpr_time_from_millis(0, GPR_TIMESPAN));
      server_.reset();
    }
  }

 private:
  void run() {
    TimePoint look_again{};
    while (true) {
      const TimePoint now = clock_.now();
      if (now >= look_again) {
        find_peers();
        look_again = now + kPeersInterval;
      }
      for (auto& [id, peer] : peers_) {
        if (now >= peer.next_call) {
          pull(id, peer);
        }
        peer.view.place_waiting();
        peer.view.expire(clock_.now());
        count(peer);
      }
      std::erase_if(peers_, [](const auto& entry) {
        return !entry.second.listed && entry.second.view.size() == 0;
      });
      report();
      MutexLock lock(mutex_);
      if (stopping_ || wake_.wait_for(lock, config_.interval,
                                      [this]() STATOR_REQUIRES(mutex_) { return stopping_; })) {
        return;
      }
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
        peers_.try_emplace(found.key, found.address, wiring_.book, config_.expiry);
        log::info(kLogTarget, "found another router",
                  {{"peer", found.key}, {"address", found.address}});
      }
    }
    if (wiring_.on_stale) {
      wiring_.on_stale(!peers_.empty());
    }
  }

  void pull(uint64_t id, AskedPeer& peer) {
    for (int turn = 0; turn < kPullsPerTurnMax; ++turn) {
      grpc::ClientContext call;
      const auto milliseconds =
          std::chrono::duration_cast<std::chrono::milliseconds>(kCallDeadline).count();
      call.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                     gpr_time_from_millis(milliseconds, GPR_TIMESPAN)));
      pb::PullRequest request;
      request.set_router_id(router_id_);
      request.set_from_sequence(peer.view.next_request());
      pb::PullResponse response;
      const grpc::Status status = peer.stub->Pull(&call, request, &response);
      auto update =
          status.ok()
              ? decode(response)
              : Result<router::ReplicaUpdate>(Error(Code::kUnavailable, status.error_message()));
      if (!update || update->router_id == router_id_) {
        series_.failures.add();
        log::debug(kLogTarget, "no news of a router",
                   {{"router_id", id}, {"error", update ? "it is us" : update.error().message()}});
        peer.next_call = clock_.now() + kRetryInterval;
        return;
      }
      peer.view.take(*update, clock_.now());
      if (peer.view.next_request() == update->sequence) {
        return;
      }
    }
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
  const Clock& clock_;
  const uint64_t router_id_;
  const std::shared_ptr<SharedLog> shared_;  // shared with announcers
  PullService service_;
  const ReplicaSeries series_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  Wiring wiring_;
  std::map<uint64_t, AskedPeer> peers_;  // the thread's; by router id, at most kPeersMax

  Mutex mutex_;
  std::condition_variable_any wake_;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  net::Thread thread_;
};

}  // namespace

std::unique_ptr<ReplicaHub> ReplicaHub::create(const router::ReplicaConfig& config,
                                               const Clock& clock, Metrics& metrics) {
  return std::make_unique<GrpcReplicaHub>(config, clock, metrics);
}

}  // namespace stator::runtime
