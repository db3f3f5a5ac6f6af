// SPDX-License-Identifier: Apache-2.0
#include "stator/configurator/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "stator/perf/engine_memory.h"

namespace stator::configurator {
namespace {

using perf::EngineModel;
using perf::Parallelism;

constexpr uint32_t kWorkersMax = 32;
constexpr size_t kPrefillsMax = 32;
constexpr size_t kDecodesPerCut = 16;
constexpr double kChunkTokens = 8192;
constexpr double kQueueing = 1.8;

std::vector<uint32_t> batches(uint32_t most) {
  std::vector<uint32_t> out;
  for (uint32_t b = 1; b <= most; b += b < 16    ? 1
                                       : b < 32  ? 4
                                       : b < 64  ? 8
                                       : b < 256 ? 16
                                       : b < 512 ? 32
                                                 : 256) {
    out.push_back(b);
  }
  return out;
}

struct Engine {
  EngineModel model;
  double kv_tokens = 0;  // of one rank of attention
};

struct Side {
  const Engine* engine = nullptr;
  uint32_t batch = 1;
  double ms = 0;    // per prompt, or per step
  double rate = 0;  // requests per second of one engine
};

/// Collects what a search finds.
class Search {
 public:
  explicit Search(const Goal& goal) : goal_(goal) {}

  Status make_engines() {
    std::string last;
    for (const Parallelism& parallel : enumerate_parallelism(goal_.engine, goal_.gpus)) {
      perf::EngineSpec spec = goal_.engine;
      spec.parallel = parallel;
      auto model = EngineModel::create(spec, goal_.database);
      if (!model) {
        last = model.error().message();
        continue;
      }
      const double length = goal_.work.input_tokens + goal_.work.output_tokens;
      const double kv =
          kv_tokens_max(*model, std::max(kChunkTokens, goal_.work.input_tokens), length);
      weight_bytes_min_ =
          std::min(weight_bytes_min_, memory_of(*model, kChunkTokens, 0, 0).total());
      kv_tokens_most_ = std::max(kv_tokens_most_, kv);
      engines_.push_back({std::move(*model), kv});
    }
    if (engines_.empty()) {
      return Error(Code::kInvalidArgument,
                   fmt::format("the model cannot be cut over {} GPUs: {}", goal_.gpus, last));
    }
    return {};
  }

  QueueModel queue_of(Mode mode) const {
    return find_queue(goal_.engine.backend, mode,
                      goal_.database == nullptr ? perf::PartsOf::kLight : perf::PartsOf::kMeasured);
  }

  void aggregate() {
    QueueModel queue = queue_of(Mode::kAggregated);
    // Of clients that all begin at once, which a plan is not for.
    queue.burst = queue.queued_power = queue.tokens_power = 0;
    const std::vector<uint32_t> sizes = batches(goal_.batch_max);
    for (const Engine& engine : engines_) {
      for (size_t i = 0; i < sizes.size(); ++i) {
        // Latencies and memory only grow with the batch: the first one that does not fit ends it.
        if (!holds(engine, sizes[i])) {
          out_.considered += sizes.size() - i;
          break;
        }
        ++out_.considered;
        ++out_.evaluated;
        const ServingPoint point = aggregated_point(engine.model, goal_.work, sizes[i], queue);
        add_aggregated(engine, sizes[i], point);
        if (point.itl_ms > 2 * goal_.itl_ms && point.ttft_ms > 2 * goal_.ttft_ms) {
          out_.considered += sizes.size() - i - 1;
          break;
        }
      }
    }
  }

  void disaggregate() {
    const std::vector<Side> prefills = find_prefills();
    const std::vector<Side> decodes = find_decodes();
    for (const Side& decode : decodes) {
      for (const Side& prefill : prefills) {
        pair(prefill, decode);
      }
    }
  }

  SearchResult finish() {
    std::vector<std::pair<double, double>> points;
    for (const Candidate& c : all_) {
      points.emplace_back(c.point.tokens_per_s_per_user, c.cluster_tokens_per_s_per_gpu);
    }
    for (const size_t index : pareto_front(points)) {
      out_.pareto.push_back(all_[index]);
    }
    out_.goal_met = std::ranges::any_of(all_, &Candidate::fits);
    rank();
    if (!out_.goal_met) {
      explain();
    }
    for (const Engine& engine : engines_) {
      for (const std::string& gap : engine.model.gaps()) {
        if (std::ranges::find(out_.gaps, gap) == out_.gaps.end()) {
          out_.gaps.push_back(gap);
        }
      }
    }
    return std::move(out_);
  }

 private:
  bool holds(const Engine& engine, uint32_t batch) const {
    return engine.kv_tokens >= batch * (goal_.work.input_tokens + goal_.work.output_tokens);
  }

  EngineChoice choice(const Engine& engine, uint32_t workers, uint32_t batch) const {
    const double length = goal_.work.input_tokens + goal_.work.output_tokens;
    return {.parallel = engine.model.spec().parallel,
            .workers = workers,
            .batch = batch,
            .tokens_per_pass = kChunkTokens,
            .kv_tokens_max = engine.kv_tokens,
            .memory_bytes = memory_of(engine.model, kChunkTokens, batch, length).total(),
            .provenance = engine.model.provenance()};
  }

  void add(Candidate candidate) {
    const ServingPoint& p = candidate.point;
    candidate.replicas = goal_.gpus / std::max(1U, p.gpus);
    candidate.cluster_tokens_per_s_per_gpu =
        p.output_tokens_per_s * candidate.replicas / goal_.gpus;
    candidate.fits = p.ttft_ms <= goal_.ttft_ms && p.itl_ms <= goal_.itl_ms;
    all_.push_back(std::move(candidate));
  }

  void add_aggregated(const Engine& engine, uint32_t batch, const ServingPoint& point) {
    Candidate candidate{.mode = Mode::kAggregated, .point = point};
    candidate.decode = candidate.prefill = choice(engine, 1, batch);
    add(std::move(candidate));
  }

  std::vector<Side> find_prefills() {
    std::vector<Side> out;
    for (const Engine& engine : engines_) {
      ++out_.considered;
      if (!holds(engine, 1)) {
        continue;
      }
      ++out_.evaluated;
      const double fresh = std::max(1.0, goal_.work.input_tokens - goal_.work.cached_tokens);
      const double ms = queue_of(Mode::kDisaggregated).prompt_scale *
                        engine.model.step_ms({.context_requests = 1,
                                              .context_tokens = fresh,
                                              .context_prefix = goal_.work.cached_tokens});
      const Parallelism& p = engine.model.spec().parallel;
      out.push_back({&engine, 1, ms, 1e3 * p.dp * p.pp / std::max(ms, 1e-9)});
    }
    std::ranges::sort(out, [](const Side& a, const Side& b) {
      return a.rate / a.engine->model.spec().parallel.gpus() >
             b.rate / b.engine->model.spec().parallel.gpus();
    });
    out.resize(std::min(out.size(), kPrefillsMax));
    return out;
  }

  std::vector<Side> find_decodes() {
    std::vector<Side> out;
    const std::vector<uint32_t> sizes = batches(goal_.batch_max);
    for (const Engine& engine : engines_) {
      std::vector<Side> mine;
      for (size_t i = 0; i < sizes.size(); ++i) {
        const Parallelism& p = engine.model.spec().parallel;
        const double ms = queue_of(Mode::kDisaggregated).decode_scale *
                          engine.model.step_ms({.decode_requests = static_cast<double>(sizes[i]),
                                                .decode_context = goal_.work.input_tokens +
                                                                  goal_.work.output_tokens / 2});
        // The smallest batch stays, so that an impossible goal still has a closest answer.
        if (!holds(engine, sizes[i]) || (ms > goal_.itl_ms && i > 0)) {
          out_.considered += sizes.size() - i;
          break;
        }
        ++out_.considered;
        ++out_.evaluated;
        mine.push_back(
            {&engine, sizes[i], ms,
             sizes[i] * 1e3 * p.dp * p.pp / (ms * std::max(1.0, goal_.work.output_tokens))});
      }
      // Those of the largest batches yield the most.
      const size_t skip = mine.size() > kDecodesPerCut ? mine.size() - kDecodesPerCut : 0;
      out.insert(out.end(), mine.begin() + static_cast<ptrdiff_t>(skip), mine.end());
    }
    return out;
  }

  /// The best numbers of both kinds: for each number of decode engines the one of prefill engines
  /// that balances the rates, or one less.
  void pair(const Side& prefill, const Side& decode) {
    const uint32_t gp = prefill.engine->model.spec().parallel.gpus();
    const uint32_t gd = decode.engine->model.spec().parallel.gpus();
    std::optional<Candidate> best;
    for (uint32_t y = 1; y <= kWorkersMax && y * gd + gp <= goal_.gpus; ++y) {
      const double balanced = std::ceil(0.92 * y * decode.rate / (0.9 * prefill.rate));
      for (const double x : {balanced, balanced - 1}) {
        ++out_.considered;
        if (x < 1 || x > kWorkersMax || x * gp + y * gd > goal_.gpus) {
          continue;
        }
        const auto workers = static_cast<uint32_t>(x);
        const double rate = std::min(0.9 * x * prefill.rate, 0.92 * y * decode.rate);
        const uint32_t replicas = goal_.gpus / (workers * gp + y * gd);
        if (best && rate * replicas <= best->cluster_tokens_per_s_per_gpu) {
          continue;
        }
        best = Candidate{.mode = Mode::kDisaggregated};
        best->prefill = choice(*prefill.engine, workers, 1);
        best->decode = choice(*decode.engine, y, decode.batch);
        best->cluster_tokens_per_s_per_gpu = rate * replicas;
      }
    }
    if (!best) {
      return;
    }
    ++out_.evaluated;
    best->point = disaggregated_point({.prefill = prefill.engine->model,
                                       .decode = decode.engine->model,
                                       .prefill_workers = 1.0 * best->prefill.workers,
                                       .decode_workers = 1.0 * best->decode.workers,
                                       .prefill_batch = 1,
                                       .decode_batch = 1.0 * decode.batch},
                                      goal_.work, queue_of(Mode::kDisaggregated));
    // Requests that come at random wait for others: as the reference, 0.8 of a prompt's time.
    best->point.ttft_ms = kQueueing * queue_of(Mode::kDisaggregated).prompt * prefill.ms;
    add(std::move(*best));
  }

  double distance(const Candidate& c) const {
    return std::max(c.point.ttft_ms / goal_.ttft_ms, c.point.itl_ms / goal_.itl_ms);
  }

  void rank() {
    std::vector<const Candidate*> order;
    for (const Candidate& c : all_) {
      if (c.fits == out_.goal_met) {
        order.push_back(&c);
      }
    }
    std::ranges::sort(order, [&](const Candidate* a, const Candidate* b) {
      if (!out_.goal_met && distance(*a) != distance(*b)) {
        return distance(*a) < distance(*b);
      }
      return std::tuple(-a->cluster_tokens_per_s_per_gpu, -a->point.tokens_per_s_per_user, a) <
             std::tuple(-b->cluster_tokens_per_s_per_gpu, -b->point.tokens_per_s_per_user, b);
    });
    std::vector<std::tuple<Mode, Parallelism, Parallelism>> seen;
    for (const Candidate* c : order) {
      const auto key = std::tuple(
          c->mode, c->mode == Mode::kAggregated ? c->decode.parallel : c->prefill.parallel,
          c->decode.parallel);
      if (std::ranges::find(seen, key) != seen.end()) {
        continue;
      }
      seen.push_back(key);
      out_.best.push_back(*c);
      if (out_.best.size() >= goal_.best) {
        break;
      }
    }
  }

  void explain() {
    constexpr double kGib = 1024.0 * 1024 * 1024;
    if (out_.best.empty()) {
      out_.binding_limit = "memory";
      const double length = goal_.work.input_tokens + goal_.work.output_tokens;
      out_.explanation = fmt::format(
          "no way to cut the model over {} GPUs leaves room for one request of {:.0f} tokens: the "
          "smallest share of weights and buffers takes {:.1f} GiB of {:.1f} GiB, the most KV is "
          "{:.0f} tokens",
          goal_.gpus, length, weight_bytes_min_ / kGib, goal_.engine.system.memory_bytes / kGib,
          kv_tokens_most_);
      return;
    }
    const ServingPoint& p = out_.best.front().point;
    const bool ttft = p.ttft_ms > goal_.ttft_ms, itl = p.itl_ms > goal_.itl_ms;
    out_.binding_limit = ttft && itl ? "ttft and itl" : ttft ? "ttft" : "itl";
    out_.explanation = fmt::format(
        "no configuration meets TTFT {} ms and ITL {} ms; the closest one has {:.1f} and {:.2f} ms",
        goal_.ttft_ms, goal_.itl_ms, p.ttft_ms, p.itl_ms);
  }

  const Goal& goal_;
  std::vector<Engine> engines_;
  std::vector<Candidate> all_;
  SearchResult out_;
  double weight_bytes_min_ = std::numeric_limits<double>::infinity();
  double kv_tokens_most_ = 0;
};

}  // namespace

std::vector<Parallelism> enumerate_parallelism(const perf::EngineSpec& engine, uint32_t gpus) {
  std::vector<Parallelism> out;
  const perf::ModelConfig& model = engine.model;
  const uint32_t node = engine.system.gpus_per_rack > 0 ? 16 : engine.system.gpus_per_node;
  for (uint32_t pp = 1; pp <= 8 && pp <= gpus; pp *= 2) {
    for (uint32_t tp = 1; tp <= node && tp * pp <= gpus; tp *= 2) {
      if (model.heads % tp != 0 || (!model.is_moe() && model.intermediate % tp != 0)) {
        continue;
      }
      if (!model.is_moe()) {
        out.push_back({.tp = tp, .pp = pp});
        continue;
      }
      for (uint32_t dp = 1; dp <= 64 && tp * dp * pp <= gpus; dp *= 2) {
        const uint32_t all = tp * dp;
        for (uint32_t ep = 1; ep <= all; ep *= 2) {
          const uint32_t moe_tp = all / ep;
          if (model.experts % ep == 0 && model.expert_intermediate % moe_tp == 0) {
            out.push_back({.tp = tp, .pp = pp, .dp = dp, .moe_tp = moe_tp, .moe_ep = ep});
          }
        }
      }
    }
  }
  return out;
}

std::vector<size_t> pareto_front(const std::vector<std::pair<double, double>>& points) {
  std::vector<size_t> order(points.size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  std::ranges::sort(order, [&](size_t a, size_t b) {
    return points[a] != points[b] ? points[a] > points[b] : a < b;
  });
  std::vector<size_t> front;
  double most = -std::numeric_limits<double>::infinity();
  for (const size_t index : order) {
    if (points[index].second > most) {
      most = points[index].second;
      front.push_back(index);
    }
  }
  return front;
}

Result<SearchResult> search(const Goal& goal) {
  if (goal.gpus == 0 || goal.gpus > 4096) {
    return Error(Code::kInvalidArgument,
                 fmt::format("gpus must be from 1 to 4096, is {}", goal.gpus));
  }
  if (!(goal.ttft_ms > 0) || !(goal.itl_ms > 0)) {
    return Error(Code::kInvalidArgument, "the goals for TTFT and ITL must be above 0 ms");
  }
  if (goal.engine.model.context_max > 0 &&
      goal.work.input_tokens + goal.work.output_tokens > goal.engine.model.context_max) {
    return Error(Code::kInvalidArgument,
                 fmt::format("isl + osl = {:.0f} tokens is more than the model's context of {}",
                             goal.work.input_tokens + goal.work.output_tokens,
                             goal.engine.model.context_max));
  }
  Search found(goal);
  STATOR_CHECK(found.make_engines());
  found.aggregate();
  found.disaggregate();
  return found.finish();
}

}  // namespace stator::configurator
