// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fault_sim/cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "stator/core/assert.h"
#include "stator/engine/sim/sim_runner.h"

namespace stator::fault_sim {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kBlockSize = 16;
constexpr uint32_t kBlocks = 160;
constexpr TokenId kFirstToken = 300;  // plain words of the demo model
constexpr TokenId kLastToken = 1000;

frontend::FrontendConfig make_config(const Plan& plan, Random& random) {
  frontend::FrontendConfig config;
  config.tokenizer_cache = false;
  config.stall_timeout = 3s;
  config.stream_idle_timeout = 15s;
  config.canary_interval = random.below(2) == 0 ? 0s : 2s;
  if (plan.strict) {
    config.migration_limit = 1000;
    config.refusals_max = 1000;
    config.migration_wait = 60s;
    config.poison_workers = 0;
  }
  return config;
}

router::RouterConfig make_router(const Plan& plan, Random& random) {
  router::RouterConfig config;
  config.mode = plan.router_mode;
  if (plan.queued) {
    config.wait.prefill_tokens = plan.wait_tokens;
    config.queue.order = plan.queue_order;
    config.queue.wait_max = plan.strict ? 0s : 1s + std::chrono::seconds(random.below(10));
    config.queue.requests_max = plan.strict ? 4096 : 2 + static_cast<uint32_t>(random.below(12));
    config.queue.quantum_tokens = 64;
  }
  return config;
}

Duration latency_of(uint64_t amount) {
  return std::chrono::milliseconds(10 * amount);
}

std::vector<uint64_t> numbers(const std::vector<WorkerId>& workers) {
  std::vector<uint64_t> ids;
  for (const WorkerId worker : workers) {
    ids.push_back(worker.value());
  }
  return ids;
}

}  // namespace

Cluster::Cluster(Parts parts, net::VirtualTime& time, RunLog& log, Random& random)
    : parts_(parts),
      time_(time),
      log_(log),
      random_(random),
      network_(time, Random(random.next())),
      store_(time, network_.add_node("store")),
      journals_(time, network_, Random(random.next())),
      replicas_(time, network_, Random(random.next())),
      plane_(time, network_, Random(random.next())) {
  settings_ = {.config = make_config(parts_.plan, random_),
               .router = make_router(parts_.plan, random_),
               .card = make_card(),
               .assets = parts_.assets};
  frontends_.resize(parts_.plan.frontends);
  for (uint32_t i = 0; i < frontends_.size(); ++i) {
    frontends_[i].node = network_.add_node(fmt::format("frontend-{}", i));
    start_frontend(i);
  }
  workers_.resize(parts_.plan.workers);
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    workers_[i].node = network_.add_node(fmt::format("worker-{}", i));
    workers_[i].clock = std::make_unique<SkewedClock>(time_.clock());
    start_worker(i);
  }
}

Cluster::~Cluster() {
  for (uint32_t i = 0; i < frontends_.size(); ++i) {
    stop_frontend(i);
  }
}

discovery::ModelCard Cluster::make_card() const {
  return {.name = "demo",
          .model_path = "demo",
          .context_length = 1024,
          .block_size = kBlockSize,
          .total_kv_blocks = kBlocks,
          .max_num_seqs = 8,
          .max_num_batched_tokens = 256,
          .vocab_size = parts_.assets->tokenizer->vocab_size(),
          .engine_kind = "sim",
          .eos_token_ids = parts_.assets->eos_token_ids};
}

engine::EngineConfig Cluster::make_engine() const {
  auto config = engine::resolve({.block_size = kBlockSize,
                                 .total_blocks = kBlocks,
                                 .max_num_seqs = 8,
                                 .max_num_batched_tokens = 256,
                                 .max_model_len = 1024},
                                1024);
  STATOR_ASSERT(config.has_value(), "the simulated engine's configuration is one");
  return *config;
}

void Cluster::later(Duration delay, std::function<void()> task) {
  time_.after(delay, std::move(task));
}

void Cluster::start_frontend(uint32_t index) {
  FrontendSlot& slot = frontends_[index];
  network_.restart(slot.node);
  slot.life = std::make_unique<FrontendNode>(
      FrontendNode::Machine{time_, network_, store_, slot.node,
                            parts_.plan.resumable ? &journals_ : nullptr,
                            parts_.plan.replicas ? &replicas_ : nullptr, plane()},
      settings_);
  log_.note("frontend {} starts, life {}", index, ++slot.lives);
}

void Cluster::count(FrontendNode& frontend) {
  resumed_ += static_cast<uint64_t>(frontend.metric("stator_frontend_resumed_streams_total"));
  moves_ += static_cast<uint64_t>(frontend.metric("dynamo_frontend_model_migration_total"));
  stale_ += static_cast<uint64_t>(frontend.metric("stator_frontend_stale_deltas_total") +
                                  frontend.metric("stator_runtime_stale_deltas_total"));
  if (const auto* replicas = frontend.replicas()) {
    const router::ReplicaView::Counts counts = replicas->counts();
    heard_.events += counts.events;
    heard_.stale += counts.stale;
    heard_.gaps += counts.gaps;
    heard_.snapshots += counts.snapshots;
    heard_.expired += counts.expired;
  }
  queued_ += static_cast<uint64_t>(frontend.metric("stator_router_queue_wait_seconds_count"));
}

void Cluster::stop_frontend(uint32_t index) {
  FrontendSlot& slot = frontends_[index];
  if (slot.life == nullptr) {
    return;
  }
  log_.note("frontend {} dies", index);
  network_.crash(slot.node);
  if (dying_) {
    dying_(*slot.life);
  }
  count(*slot.life);
  slot.life.reset();
}

void Cluster::start_worker(uint32_t index) {
  WorkerSlot& slot = workers_[index];
  network_.restart(slot.node);
  slot.leaving = false;
  const bool impostor = parts_.impostor && index + 1 == workers_.size();
  auto runner = engine::make_sim_runner({.vocab_size = parts_.assets->tokenizer->vocab_size(),
                                         .max_model_len = 1024,
                                         .block_size = kBlockSize,
                                         .seed = impostor ? 1U : 0U,
                                         .first_token = kFirstToken,
                                         .last_token = kLastToken,
                                         .eos_every = 40});
  STATOR_ASSERT(runner.has_value(), "the simulated model's configuration is one");
  discovery::InstanceRecord record;
  record.key.worker = WorkerId(index + 1);
  record.incarnation = Incarnation(++slot.lives);
  record.address = network_.name(slot.node);
  record.model = settings_.card;
  slot.metrics = std::make_unique<Metrics>();
  slot.life = std::make_unique<VirtualWorker>(
      VirtualWorker::Machine{time_, network_, slot.node, *slot.clock, *slot.metrics, plane()},
      record, make_engine(), std::move(*runner));
  slot.registration = std::make_unique<VirtualRegistration>(store_, network_, time_, slot.node,
                                                            Random(random_.next()));
  slot.registration->publish(record);
  log_.note("worker {} starts, life {}", index, slot.lives);
}

/// Its node has crashed; the next life begins in a while.
void Cluster::bury_worker(uint32_t index, Duration until_next) {
  WorkerSlot& slot = workers_[index];
  log_.note("worker {} is dead for {} ms", index, until_next / 1ms);
  slot.registration.reset();
  slot.life.reset();
  later(until_next, [this, index] { start_worker(index); });
}

void Cluster::drain_worker(uint32_t index, Duration lasts) {
  WorkerSlot& slot = workers_[index];
  slot.leaving = true;
  discovery::InstanceRecord record = slot.life->record();
  record.state = discovery::InstanceState::kDraining;
  slot.registration->publish(record);
  slot.life->drain();
  later(lasts, [this, index, life = slot.lives] {
    WorkerSlot& drained = workers_[index];
    if (drained.life == nullptr || drained.lives != life) {
      return;
    }
    log_.note("worker {} hands over {} requests", index, drained.life->in_flight());
    drained.registration->withdraw();
    drained.life->hand_over();
    later(50ms, [this, index, life] {
      if (workers_[index].life != nullptr && workers_[index].lives == life) {
        network_.crash(workers_[index].node);
        bury_worker(index, 500ms);
      }
    });
  });
}

void Cluster::block(const PlannedFault& fault) {
  const NodeId worker = workers_[fault.worker].node;
  const NodeId frontend = frontends_[fault.frontend].node;
  std::vector<std::pair<NodeId, NodeId>> links;
  if (fault.fault == Fault::kCopyCut) {
    for (const FrontendSlot& other : frontends_) {
      if (other.node != frontend) {
        links.emplace_back(frontend, other.node);
      }
    }
  } else if (fault.fault == Fault::kStoreCut) {
    const NodeId node = fault.amount % 2 == 0 ? worker : frontend;
    links = {{node, store_.node()}, {store_.node(), node}};
  } else if (fault.fault == Fault::kPartition) {
    links = {{worker, frontend}, {frontend, worker}};
  } else if (fault.amount % 2 == 0) {
    links = {{worker, frontend}};
  } else {
    links = {{frontend, worker}};
  }
  for (const auto& [from, to] : links) {
    network_.set_blocked(from, to, true);
  }
  later(fault.lasts, [this, links] {
    for (const auto& [from, to] : links) {
      network_.set_blocked(from, to, false);
      log_.note("{} reaches {} again", network_.name(from), network_.name(to));
    }
  });
}

/// Messages between one worker and one frontend fare badly for a while.
void Cluster::spoil(const PlannedFault& fault) {
  const NodeId worker = workers_[fault.worker].node;
  const NodeId frontend = frontends_[fault.frontend].node;
  LinkQuality quality;
  const double often = static_cast<double>(fault.amount) / 1000;
  auto& session = quality.faults[static_cast<size_t>(StreamKind::kSession)];
  switch (fault.fault) {
    case Fault::kDelay:
      quality.latency = latency_of(fault.amount);
      quality.jitter = quality.latency / 2;
      break;
    case Fault::kDrop:
      session.drop = often;
      break;
    case Fault::kDuplicate:
      session.duplicate = often * 5;
      break;
    case Fault::kReorder:
      session.reorder = often * 5;
      break;
    case Fault::kCorrupt:
      session.corrupt = often;
      break;
    default:
      quality.faults[static_cast<size_t>(StreamKind::kEvents)].drop = often * 10;
      break;
  }
  network_.set_quality(worker, frontend, quality);
  network_.set_quality(frontend, worker, quality);
  later(fault.lasts, [this, worker, frontend] {
    network_.set_quality(worker, frontend, {});
    network_.set_quality(frontend, worker, {});
  });
}

void Cluster::disturb_store(const PlannedFault& fault) {
  switch (fault.fault) {
    case Fault::kStoreDown:
      store_.set_up(false);
      later(fault.lasts, [this] {
        store_.set_up(true);
        log_.note("the store is back");
      });
      break;
    case Fault::kStoreWipe:
      store_.wipe();
      break;
    case Fault::kStoreCompact:
      store_.compact();
      break;
    default:
      store_.revoke_all();
      break;
  }
}

void Cluster::confuse_replicas(const PlannedFault& fault) {
  const double often = static_cast<double>(fault.amount) / 100;
  replicas_.set_faults({.drop = often, .duplicate = often, .late = often});
  later(fault.lasts, [this] { replicas_.set_faults({}); });
}

void Cluster::lose_events(const PlannedFault& fault) {
  const double often = static_cast<double>(fault.amount) / 100;
  plane_.set_faults({.drop = often, .duplicate = often, .late = often});
  later(fault.lasts, [this] { plane_.set_faults({}); });
}

void Cluster::hang(const PlannedFault& fault) {
  WorkerSlot& slot = workers_[fault.worker];
  const bool freeze = fault.fault == Fault::kFreeze;
  slot.life->engine().set_hung(true);
  if (freeze) {
    network_.set_frozen(slot.node, true);
  }
  later(fault.lasts, [this, index = fault.worker, life = slot.lives, freeze] {
    WorkerSlot& hung = workers_[index];
    if (hung.life != nullptr && hung.lives == life) {
      log_.note("worker {} goes on", index);
      if (freeze) {
        network_.set_frozen(hung.node, false);
      }
      hung.life->engine().set_hung(false);
    }
  });
}

void Cluster::slow_down(const PlannedFault& fault) {
  WorkerSlot& slot = workers_[fault.worker];
  slot.life->engine().set_slowness(static_cast<double>(fault.amount));
  later(fault.lasts, [this, index = fault.worker, life = slot.lives] {
    if (workers_[index].life != nullptr && workers_[index].lives == life) {
      workers_[index].life->engine().set_slowness(1);
    }
  });
}

void Cluster::apply(const PlannedFault& fault) {
  WorkerSlot& worker = workers_[fault.worker];
  const bool on_worker = fault.fault <= Fault::kSlow || fault.fault == Fault::kSkew;
  if (on_worker && (worker.life == nullptr || worker.leaving || network_.down(worker.node))) {
    return;  // one thing at a time
  }
  log_.note("fault {}: worker {}, frontend {}, {} ms, {}", to_string(fault.fault), fault.worker,
            fault.frontend, fault.lasts / 1ms, fault.amount);
  switch (fault.fault) {
    case Fault::kCrash:
    case Fault::kRestart:
      network_.crash_at_frame(
          worker.node, fault.amount,
          [this, index = fault.worker, lasts = fault.lasts] { bury_worker(index, lasts); });
      break;
    case Fault::kDrain:
      drain_worker(fault.worker, fault.lasts);
      break;
    case Fault::kHang:
    case Fault::kFreeze:
      hang(fault);
      break;
    case Fault::kSlow:
      slow_down(fault);
      break;
    case Fault::kPartition:
    case Fault::kOneWay:
    case Fault::kStoreCut:
    case Fault::kCopyCut:
      block(fault);
      break;
    case Fault::kSkew:
      worker.clock->skew(fault.amount % 2 == 0 ? 1h : -1h,
                         0.9 + 0.2 * static_cast<double>(fault.amount) / 60);
      break;
    case Fault::kStoreDown:
    case Fault::kStoreWipe:
    case Fault::kStoreCompact:
    case Fault::kLeaseLoss:
      disturb_store(fault);
      break;
    case Fault::kFrontend:
      stop_frontend(fault.frontend);
      later(fault.lasts, [this, index = fault.frontend] {
        if (frontends_[index].life == nullptr) {
          start_frontend(index);
        }
      });
      break;
    case Fault::kEventLoss:
      if (parts_.plan.event_plane) {
        lose_events(fault);
      } else {
        spoil(fault);
      }
      break;
    case Fault::kReplicaLoss:
      confuse_replicas(fault);
      break;
    case Fault::kClient:
      break;  // clients do that by themselves
    default:
      spoil(fault);
      break;
  }
}

bool Cluster::workers_idle() {
  return std::ranges::all_of(workers_, [](WorkerSlot& slot) {
    return slot.life == nullptr || (slot.life->engine().idle() && slot.life->in_flight() == 0);
  });
}

void Cluster::check_rest() {
  std::vector<WorkerId> alive;
  uint64_t blocks = 0;
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    WorkerSlot& slot = workers_[i];
    if (slot.life == nullptr) {
      log_.violation("4: worker {} did not come back", i);
      continue;
    }
    alive.emplace_back(i + 1);
    blocks += [&] {
      uint64_t count = 0;
      for (const kv::BlocksStored& run : slot.life->engine().events().snapshot().stored) {
        count += run.blocks.size();
      }
      return count;
    }();
    if (!slot.life->engine().idle() || slot.life->in_flight() > 0) {
      log_.violation("3: worker {} still works on {} requests, {} in flight", i,
                     slot.life->engine().load().running + slot.life->engine().load().waiting,
                     slot.life->in_flight());
    }
    slot.life->engine().scheduler().check_invariants();
  }
  for (uint32_t i = 0; i < frontends_.size(); ++i) {
    check_frontend_rest(i, alive, blocks);
  }
}

void Cluster::check_frontend_rest(uint32_t index, const std::vector<WorkerId>& alive,
                                  uint64_t blocks) {
  FrontendNode* node = frontends_[index].life.get();
  if (node == nullptr) {
    log_.violation("4: frontend {} did not come back", index);
    return;
  }
  count(*node);
  if (node->active() != 0 || node->leases() != 0 || node->waiting() != 0) {
    log_.violation("3: frontend {} has {} requests, {} leases and {} waiting", index,
                   node->active(), node->leases(), node->waiting());
  }
  if (node->listed() != alive || node->routable() != alive) {
    log_.violation("4: frontend {} lists workers {} and routes to {}, alive are {}", index,
                   numbers(node->listed()), numbers(node->routable()), numbers(alive));
  }
  if (node->indexed_blocks() != blocks) {
    log_.violation("4: frontend {} knows {} KV blocks, there are {}", index, node->indexed_blocks(),
                   blocks);
  }
  if (node->replicas() != nullptr &&
      (!node->replicas()->agrees() || node->replicas()->bookings() > 0)) {
    log_.violation("7: frontend {} counts {} bookings of others, or has not heard all", index,
                   node->replicas()->bookings());
  }
}

}  // namespace stator::fault_sim
