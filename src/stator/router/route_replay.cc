// SPDX-License-Identifier: Apache-2.0
#include "stator/router/route_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <queue>

#include "stator/core/flat_map.h"

namespace stator::router {
namespace {

using blocks::ExternalHash;
using blocks::LocalHash;
using blocks::SequenceHash;

constexpr uint64_t kSeed = 1;

Duration from_ms(double ms) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(ms));
}

double to_ms(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

/// The prompts' blocks that one worker keeps: least recently used first out, tails before heads.
class BlockCache {
 public:
  explicit BlockCache(size_t blocks_max) : blocks_max_(blocks_max) {}

  size_t leading(std::span<const SequenceHash> prompt) const {
    size_t count = 0;
    while (count < prompt.size() && at_.contains(prompt[count])) {
      ++count;
    }
    return count;
  }
  /// Keeps the whole prompt; returns what had to go for it.
  std::vector<ExternalHash> keep(std::span<const SequenceHash> prompt) {
    for (size_t i = prompt.size(); i-- > 0;) {
      if (const auto known = at_.find(prompt[i]); known != at_.end()) {
        order_.splice(order_.end(), order_, known->second);
      } else {
        order_.push_back(prompt[i]);
        at_.emplace(prompt[i], std::prev(order_.end()));
      }
    }
    std::vector<ExternalHash> gone;
    while (order_.size() > blocks_max_) {
      gone.emplace_back(order_.front().value());
      at_.erase(order_.front());
      order_.pop_front();
    }
    return gone;
  }

 private:
  const size_t blocks_max_;
  std::list<SequenceHash> order_;
  FlatMap<SequenceHash, std::list<SequenceHash>::iterator> at_;
};

struct Worker {
  WorkerKey key;
  BlockCache cache;
  TimePoint idle_at{};
  uint64_t computed_tokens = 0;
  uint32_t running = 0;
};

/// One replay under way.
class Replay {
 public:
  Replay(const ReplayFleet& fleet, std::span<const ReplayRequest> requests)
      : fleet_(fleet), requests_(requests), leases_(requests.size()), prompts_(requests.size()) {}

  Status open(const RouterConfig& config) {
    STATOR_TRY(router_, Router::create(config, LoadBook::make(clock_), Random(kSeed)));
    for (uint32_t i = 0; i < fleet_.workers; ++i) {
      workers_.push_back({.key = {WorkerId(i + 1), 0}, .cache = BlockCache(fleet_.kv_blocks)});
      router_->add_worker(workers_.back().key,
                          {.total_kv_blocks = fleet_.kv_blocks, .max_num_batched_tokens = 8192});
    }
    figures_.policy = config.mode;
    return {};
  }

  ReplayFigures run() {
    for (uint32_t i = 0; i < requests_.size(); ++i) {
      const TimePoint arrival(from_ms(requests_[i].arrival_ms / fleet_.speedup));
      handle_until(arrival);
      arrive(i);
    }
    handle_until(TimePoint::max());
    return finish();
  }

 private:
  enum class Kind : uint8_t { kFirstToken, kEnd };
  struct Event {
    TimePoint time;
    uint64_t number;  // order of making: ties are deterministic
    Kind kind;
    uint32_t request;
    uint32_t worker;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  void move_to(TimePoint time) {
    if (time > clock_.now()) {
      clock_.advance(time - clock_.now());
    }
  }

  void handle_until(TimePoint time) {
    while (!events_.empty() && events_.top().time <= time) {
      const Event event = events_.top();
      events_.pop();
      move_to(event.time);
      event.kind == Kind::kFirstToken ? first_token(event) : end(event);
    }
    if (time != TimePoint::max()) {
      move_to(time);
    }
  }

  void arrive(uint32_t index) {
    const ReplayRequest& request = requests_[index];
    std::vector<SequenceHash>& prompt = prompts_[index];
    for (const uint64_t block : request.blocks) {
      prompt.push_back(prompt.empty() ? blocks::chain(LocalHash(block))
                                      : blocks::chain(prompt.back(), LocalHash(block)));
    }
    const std::string id = fmt::format("{}", index);
    auto decision = router_->route({.request_id = id,
                                    .model = "trace",
                                    .prompt_tokens = std::max(1U, request.prompt_tokens),
                                    .block_size = fleet_.block_size,
                                    .sequences = prompt},
                                   clock_.wall_now());
    ++figures_.requests;
    if (!decision) {
      ++figures_.refused;
      figures_.choices.push_back({});
      return;
    }
    figures_.choices.push_back(decision->worker);
    leases_[index] = std::move(decision->lease);
    const auto number = static_cast<uint32_t>(decision->worker.worker.value() - 1);
    Worker& worker = workers_[number];
    const uint64_t cached = std::min<uint64_t>(
        worker.cache.leading(prompt) * uint64_t{fleet_.block_size}, request.prompt_tokens);
    const uint64_t computed = request.prompt_tokens - cached;
    figures_.prompt_tokens += request.prompt_tokens;
    figures_.computed_tokens += computed;
    worker.computed_tokens += computed;
    const TimePoint start = std::max(clock_.now(), worker.idle_at);
    worker.idle_at = start + from_ms(static_cast<double>(computed) * fleet_.prefill_ms_per_token);
    ttft_ms_.push_back(to_ms(worker.idle_at - clock_.now()));
    events_.push({worker.idle_at, ++made_, Kind::kFirstToken, index, number});
  }

  void first_token(const Event& event) {
    Worker& worker = workers_[event.worker];
    leases_[event.request].mark_prefill_completed();
    const std::vector<SequenceHash>& prompt = prompts_[event.request];
    const size_t known = worker.cache.leading(prompt);
    const auto gone = worker.cache.keep(prompt);
    store(worker.key, event.request, known);
    if (!gone.empty()) {
      figures_.evicted_blocks += gone.size();
      router_->apply(worker.key, {.data = kv::BlocksRemoved{gone}});
    }
    ++worker.running;
    const uint32_t output = requests_[event.request].output_tokens;
    const double itl = fleet_.itl_base_ms + fleet_.itl_ms_per_request * worker.running;
    events_.push(
        {clock_.now() + from_ms(itl * output), ++made_, Kind::kEnd, event.request, event.worker});
  }

  void store(WorkerKey worker, uint32_t request, size_t known) {
    const std::vector<SequenceHash>& prompt = prompts_[request];
    kv::BlocksStored run;
    if (known > 0) {
      run.parent = ExternalHash(prompt[known - 1].value());
    }
    for (size_t i = known; i < prompt.size(); ++i) {
      run.blocks.push_back(
          {ExternalHash(prompt[i].value()), LocalHash(requests_[request].blocks[i])});
    }
    if (!run.blocks.empty()) {
      router_->apply(worker, {.data = std::move(run)});
    }
  }

  void end(const Event& event) {
    leases_[event.request].add_output_tokens(requests_[event.request].output_tokens);
    leases_[event.request].release();
    --workers_[event.worker].running;
    prompts_[event.request] = {};
  }

  ReplayFigures finish() {
    figures_.makespan_s = to_ms(clock_.now().time_since_epoch()) / 1000;
    uint64_t most = 0;
    for (const Worker& worker : workers_) {
      most = std::max(most, worker.computed_tokens);
    }
    figures_.imbalance = figures_.computed_tokens == 0
                             ? 0
                             : static_cast<double>(most) * fleet_.workers /
                                   static_cast<double>(figures_.computed_tokens);
    if (!ttft_ms_.empty()) {
      double sum = 0;
      for (const double each : ttft_ms_) {
        sum += each;
      }
      figures_.ttft_mean_ms = sum / static_cast<double>(ttft_ms_.size());
      std::ranges::sort(ttft_ms_);
      figures_.ttft_p50_ms = ttft_ms_[ttft_ms_.size() / 2];
      figures_.ttft_p99_ms = ttft_ms_[ttft_ms_.size() * 99 / 100];
    }
    return std::move(figures_);
  }

  const ReplayFleet& fleet_;
  const std::span<const ReplayRequest> requests_;
  SimClock clock_;
  std::unique_ptr<Router> router_;
  std::vector<Worker> workers_;
  std::vector<LoadLease> leases_;
  std::vector<std::vector<SequenceHash>> prompts_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t made_ = 0;
  std::vector<double> ttft_ms_;
  ReplayFigures figures_;
};

}  // namespace

Result<ReplayFigures> replay_trace(std::span<const ReplayRequest> requests,
                                   const RouterConfig& config, const ReplayFleet& fleet) {
  if (fleet.workers == 0 || fleet.block_size == 0 || fleet.kv_blocks == 0 || !(fleet.speedup > 0)) {
    return Error(Code::kInvalidArgument,
                 "workers, block size, KV blocks and speed-up must be more than 0");
  }
  Replay replay(fleet, requests);
  STATOR_CHECK(replay.open(config));
  return replay.run();
}

Result<WorkerKey> replay_receipt(const Receipt& receipt, std::string_view policy, Random& random) {
  const PolicyInfo* info = find_policy(policy);
  if (info == nullptr) {
    return Error(Code::kInvalidArgument, fmt::format("unknown policy '{}'", policy));
  }
  std::vector<WorkerTable::Worker> workers;
  std::vector<uint32_t> rows;
  std::vector<LoadRow> load;
  std::vector<uint32_t> overlap;
  for (const ReceiptCandidate& candidate : receipt.candidates) {
    if (candidate.excluded == Exclusion::kNone) {
      rows.push_back(static_cast<uint32_t>(workers.size()));
      load.push_back({.prefill_tokens = static_cast<double>(candidate.active_prefill_tokens),
                      .active_blocks = static_cast<double>(candidate.active_blocks),
                      .active_requests = static_cast<double>(candidate.active_requests)});
      overlap.push_back(candidate.overlap_blocks);
    }
    workers.push_back({.key = candidate.worker});
  }
  if (rows.empty() || receipt.block_size == 0) {
    return Error(Code::kInvalidArgument, "the receipt has no eligible candidate or no block size");
  }
  const std::vector<uint32_t> held(rows.size(), 0);
  const std::vector<uint32_t> kv_blocks(rows.size(), 0);  // a receipt does not say
  std::vector<uint64_t> key_hashes;
  for (const uint32_t row : rows) {
    key_hashes.push_back(WorkerTable::hash_of(workers[row].key));
  }
  const std::vector<WorkerRates::Rates> rates(rows.size());
  std::vector<double> costs(rows.size(), 0);
  const PolicyRequest request{
      .shape = {.prompt_tokens = receipt.prompt_tokens, .block_size = receipt.block_size},
      .prompt_blocks = (receipt.prompt_tokens + receipt.block_size - 1) / receipt.block_size,
      .cost = {.temperature = receipt.temperature}};
  const Choice choice = info->make()->choose({.request = request,
                                              .workers = workers,
                                              .rows = rows,
                                              .kv_blocks = kv_blocks,
                                              .key_hashes = key_hashes,
                                              .load = load,
                                              .overlap_blocks = overlap,
                                              .held_blocks = held,
                                              .rates = rates,
                                              .costs = costs},
                                             random);
  return workers[rows[choice.row]].key;
}

}  // namespace stator::router
