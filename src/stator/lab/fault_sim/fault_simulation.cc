// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fault_sim/fault_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "stator/core/entropy.h"
#include "stator/core/random.h"
#include "stator/lab/fault_sim/cluster.h"
#include "stator/lab/fault_sim/run_log.h"
#include "stator/lab/fault_sim/virtual_client.h"
#include "stator/net/virtual_time.h"

namespace stator::fault_sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kSettle = 2s;        // until workers are found
constexpr Duration kArrivalsEnd = 14s;  // faults begin and end around them
constexpr Duration kLook = 1s;          // between two checks
constexpr Duration kRest = 75s;         // longer than a view doubts what a store has lost
constexpr Duration kReturn = 500ms;     // until a client whose frontend died comes back
constexpr int kReturnsMax = 40;         // then it gives up
constexpr Duration kProbeLook = 10ms;
constexpr int kProbeLooks = 50;
constexpr Duration kBurst = 3s;  // apart, where requests wait
constexpr uint64_t kTenants = 3;
constexpr uint64_t kLeavingClients = 8;  // one in so many leaves by itself

/// One run: clients, their cluster and its faults.
class Run {
 public:
  struct Input {
    const Plan& plan;
    const std::vector<std::string>& bodies;
    const References* references;  ///< null: this run makes them
    std::shared_ptr<const frontend::ModelAssets> assets;
    bool impostor = false;
    bool leaving = false;
  };
  Run(Input input, Random random, std::function<void(std::string_view)> print)
      : input_(std::move(input)),
        entropy_(random.next()),
        random_(random),
        log_(time_.clock(), std::move(print)),
        cluster_({input_.plan, input_.assets, input_.impostor}, time_, log_, random_) {
    cluster_.on_frontend_death([this](FrontendNode& node) { cut_clients(node); });
  }

  void go() {
    for (const PlannedFault& fault : input_.plan.faults) {
      time_.after(kSettle + fault.at, [this, &fault] { cluster_.apply(fault); });
    }
    for (uint32_t i = 0; i < input_.plan.requests; ++i) {
      Duration at(random_.below(static_cast<uint64_t>(kArrivalsEnd.count())));
      at -= input_.plan.queued ? at % kBurst : Duration::zero();
      const std::string& body = input_.references == nullptr
                                    ? input_.bodies[i]
                                    : input_.bodies[random_.below(input_.bodies.size())];
      time_.after(kSettle + at, [this, &body] { send(body); });
    }
    const TimePoint end = time_.now() + kSettle + kArrivalsEnd + FaultSimulation::kPatience;
    time_.run_until(time_.now() + kSettle + kArrivalsEnd + 1s);
    while (running_ > 0 && time_.now() < end) {
      time_.run_until(time_.now() + kLook);
      settle_answers();
    }
    time_.run_until(time_.now() + kRest);
    settle_answers();
    for (const auto& sent : clients_) {
      if (!sent->judged) {
        log_.violation("1: request {} never ends", sent->number);
      }
    }
    // Idle workers are probed from time to time, perhaps just now.
    for (int i = 0; i < kProbeLooks && !cluster_.workers_idle(); ++i) {
      time_.run_until(time_.now() + kProbeLook);
    }
    cluster_.check_rest();
  }

  Outcome outcome() {
    Outcome& out = outcome_;
    out.log_hash = mix64(log_.hash() ^ cluster_.messages());
    out.violations = log_.violations();
    out.moves = cluster_.moves();
    out.resumed = cluster_.resumed();
    out.heard = cluster_.heard().events;
    out.unheard = cluster_.heard().gaps + cluster_.heard().stale;
    out.queued = cluster_.queued();
    out.stale = cluster_.stale();
    out.messages = cluster_.messages();
    out.virtual_s = std::chrono::duration<double>(time_.now().time_since_epoch()).count();
    return out;
  }
  References take_references() { return std::move(made_); }
  /// Ends the frontends, so that their counters are in the outcome.
  const std::vector<std::string>& violations() const { return log_.violations(); }

 private:
  struct Sent {
    uint32_t number = 0;
    const std::string* body = nullptr;
    FrontendNode* frontend = nullptr;
    std::unique_ptr<VirtualClient> client;
    size_t seen_when_gone = 0;
    bool left = false;
    bool judged = false;
    std::string known;    // whole events of connections that broke
    std::string last_id;  // not empty: it comes back
    std::string tenant;   // empty: it does not say
    int returns = 0;
    std::vector<std::unique_ptr<VirtualClient>> former;
  };

  void send(const std::string& body) {
    const uint32_t index = static_cast<uint32_t>(random_.below(cluster_.frontend_count()));
    FrontendNode* frontend = find_ready(index);
    if (frontend == nullptr) {
      return;  // the client does not even connect
    }
    auto sent = std::make_unique<Sent>();
    sent->number = outcome_.requests++;
    sent->body = &body;
    sent->frontend = frontend;
    if (input_.plan.queued) {
      sent->tenant = fmt::format("tenant-{}", random_.below(kTenants));
    }
    sent->client = std::make_unique<VirtualClient>(body, frontend->shard(), headers_of(*sent));
    ++running_;
    log_.note("request {} begins at frontend {}", sent->number, index);
    Sent& request = *sent;
    clients_.push_back(std::move(sent));
    frontend->send(*request.client);
    if (input_.leaving && random_.below(kLeavingClients) == 0) {
      time_.after(Duration(random_.below(1'500'000'000)), [this, &request] { leave(request); });
    }
  }

  static VirtualClient::Headers headers_of(const Sent& sent) {
    VirtualClient::Headers headers;
    if (!sent.last_id.empty()) {
      headers.emplace_back("last-event-id", sent.last_id);
    }
    if (!sent.tenant.empty()) {
      headers.emplace_back("x-tenant-id", sent.tenant);
    }
    return headers;
  }

  FrontendNode* find_ready(uint32_t first) {
    for (uint32_t i = 0; i < cluster_.frontend_count(); ++i) {
      FrontendNode* node = cluster_.frontend((first + i) % cluster_.frontend_count());
      if (node != nullptr && node->ready()) {
        return node;
      }
    }
    return nullptr;
  }

  void leave(Sent& sent) {
    if (sent.frontend != nullptr && sent.client->end() == VirtualClient::End::kNone) {
      log_.note("the client of request {} leaves", sent.number);
      sent.seen_when_gone = sent.client->received().size();
      sent.left = true;
      sent.frontend->leave(*sent.client);
    }
  }

  void cut_clients(FrontendNode& node) {
    settle_answers();
    for (const auto& sent : clients_) {
      if (sent->frontend == &node) {
        cut(*sent);
      }
    }
  }

  /// The connection breaks, and with it at any byte what was on its way.
  void cut(Sent& sent) {
    const bool running = sent.client->end() == VirtualClient::End::kNone;
    sent.client->cut();
    sent.frontend = nullptr;
    if (!running || !input_.plan.resumable) {
      return;
    }
    const std::string& received = sent.client->received();
    const size_t arrived =
        random_.below(2) == 0 ? received.size() : random_.below(received.size() + 1);
    KnownEvents known = read_events(std::string_view(received).substr(0, arrived));
    if (!known.events.empty()) {
      sent.known += known.events;
      sent.last_id = std::move(known.last_id);
    }
    plan_return(sent);
  }

  void plan_return(Sent& sent) {
    if (!sent.last_id.empty() && ++sent.returns <= kReturnsMax) {
      time_.after(Duration(random_.below(static_cast<uint64_t>(kReturn.count()))),
                  [this, &sent] { come_back(sent); });
    } else {
      sent.last_id.clear();
    }
  }

  void come_back(Sent& sent) {
    FrontendNode* frontend =
        find_ready(static_cast<uint32_t>(random_.below(cluster_.frontend_count())));
    if (frontend == nullptr) {
      plan_return(sent);
      return;
    }
    log_.note("the client of request {} comes back", sent.number);
    sent.former.push_back(std::move(sent.client));
    sent.client = std::make_unique<VirtualClient>(*sent.body, frontend->shard(), headers_of(sent));
    sent.frontend = frontend;
    frontend->send(*sent.client);
  }

  /// It waits to come back, or is told to.
  bool returns(Sent& sent) {
    if (sent.last_id.empty() || sent.client->end() == VirtualClient::End::kNone) {
      return false;
    }
    if (sent.frontend == nullptr) {
      return !sent.left;
    }
    if (sent.client->status() == 503 && sent.client->content_type() == "application/json") {
      sent.frontend = nullptr;
      plan_return(sent);
      return !sent.last_id.empty();
    }
    return false;
  }

  void settle_answers() {
    for (const auto& sent : clients_) {
      if (!sent->judged && !returns(*sent) && sent->client->end() != VirtualClient::End::kNone) {
        sent->judged = true;
        --running_;
        judge(*sent);
      }
    }
  }

  void judge(const Sent& sent) {
    const VirtualClient& client = *sent.client;
    if (client.misuse()) {
      log_.violation("1: request {}: {}", sent.number, *client.misuse());
    }
    const bool lost = sent.returns > 0 && !sent.left &&
                      (client.end() == VirtualClient::End::kGone || client.status() == 404);
    if (lost && input_.plan.copies_safe()) {
      log_.violation("6: request {}: nobody has the rest: {} {}", sent.number, client.status(),
                     client.received());
    }
    if (lost || client.end() == VirtualClient::End::kGone) {
      ++outcome_.gone;
      if (sent.left && client.received().size() != sent.seen_when_gone) {
        log_.violation("5: request {}: bytes for a client that has left", sent.number);
      }
      return;
    }
    if (client.failed()) {
      ++outcome_.refused;
      log_.note("request {} fails with {}: {}", sent.number, client.status(), client.received());
      if (input_.plan.strict) {
        log_.violation("2: request {} fails though a worker was there: {}", sent.number,
                       client.received());
      }
      return;
    }
    const auto seen = read_answer(client.content_type(), sent.known + client.received());
    if (!seen) {
      log_.violation("2: request {}: {}", sent.number, seen.error().message());
      return;
    }
    if (input_.references == nullptr) {
      made_[*sent.body] = *seen;
      return;
    }
    if (*seen != input_.references->at(*sent.body)) {
      log_.violation("2: request {} got\n  {}\ninstead of\n  {}", sent.number, *seen,
                     input_.references->at(*sent.body));
      return;
    }
    ++outcome_.exact;
    log_.note("request {} is answered", sent.number);
  }

  const Input input_;
  const FixedEntropy entropy_;
  net::VirtualTime time_;
  Random random_;
  RunLog log_;
  std::vector<std::unique_ptr<Sent>> clients_;  // outlive the frontends that write to them
  Cluster cluster_;
  uint32_t running_ = 0;
  Outcome outcome_;
  References made_;
};

}  // namespace

Result<std::unique_ptr<FaultSimulation>> FaultSimulation::create(const std::string& model_dir) {
  auto simulation = std::unique_ptr<FaultSimulation>(new FaultSimulation);
  STATOR_TRY(simulation->assets_, frontend::load_model_assets(model_dir));
  simulation->bodies_ = make_bodies();
  const Plan calm{.workers = 2,
                  .frontends = 1,
                  .requests = static_cast<uint32_t>(simulation->bodies_.size()),
                  .router_mode = "kv",
                  .strict = true,
                  .faults = {}};
  Run run({.plan = calm,
           .bodies = simulation->bodies_,
           .references = nullptr,
           .assets = simulation->assets_},
          Random(1), nullptr);
  run.go();
  if (!run.violations().empty()) {
    return Error(Code::kInternal, "without faults: " + run.violations().front());
  }
  simulation->references_ = run.take_references();
  return simulation;
}

Outcome FaultSimulation::run(const Options& options) const {
  Random random(options.seed);
  const Plan plan = make_plan(options.faults, random);
  Run run({.plan = plan,
           .bodies = bodies_,
           .references = &references_,
           .assets = assets_,
           .impostor = options.impostor,
           .leaving = options.faults.has(Fault::kClient)},
          random, options.print);
  run.go();
  return run.outcome();
}

}  // namespace stator::fault_sim
