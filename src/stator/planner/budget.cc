// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/budget.h"

#include <algorithm>
#include <cmath>

namespace stator::planner {
namespace {

uint32_t positive(double value) {
  return static_cast<uint32_t>(std::max(0.0, value));
}

PairSize shrink(PairSize wanted, const PoolFootprint& p, const PoolFootprint& d, double most) {
  const double gp = p.gpus_per_worker, gd = d.gpus_per_worker;
  if (most < p.min_workers * gp + d.min_workers * gd) {
    return {};
  }
  const double scale = most / (wanted.prefill * gp + wanted.decode * gd);
  const double room = std::floor((most - d.min_workers * gd) / gp);
  const double prefill =
      std::max<double>(p.min_workers, std::min(room, std::floor(wanted.prefill * scale)));
  const double decode = std::max<double>(d.min_workers, std::floor((most - prefill * gp) / gd));
  return {positive(prefill), positive(decode)};
}

PairSize grow(PairSize wanted, const PoolFootprint& p, const PoolFootprint& d, double least) {
  const double gp = p.gpus_per_worker, gd = d.gpus_per_worker;
  const double total = wanted.prefill * gp + wanted.decode * gd;
  const double prefill =
      std::max<double>(p.min_workers, total > 0 ? std::ceil(wanted.prefill * least / total)
                                                : std::ceil(least / 2 / gp));
  const double decode =
      std::max<double>(d.min_workers, std::ceil(std::max(0.0, least - prefill * gp) / gd));
  return {positive(prefill), positive(decode)};
}

}  // namespace

PairSize clamp_pair(PairSize wanted, const PoolFootprint& prefill, const PoolFootprint& decode,
                    const GpuBudget& budget) {
  const double gp = prefill.gpus_per_worker, gd = decode.gpus_per_worker;
  const double total = wanted.prefill * gp + wanted.decode * gd;
  if (budget.max_gpus >= 0 && total > budget.max_gpus) {
    return shrink(wanted, prefill, decode, budget.max_gpus);
  }
  const double tolerance = budget.max_gpus >= 0 && budget.min_gpus >= 0 ? std::max(gp, gd) : 0;
  if (budget.min_gpus >= 0 && total < budget.min_gpus - tolerance) {
    const PairSize grown = grow(wanted, prefill, decode, budget.min_gpus);
    const bool over =
        budget.max_gpus >= 0 && grown.prefill * gp + grown.decode * gd > budget.max_gpus;
    return over ? wanted : grown;
  }
  return wanted;
}

uint32_t clamp_single(uint32_t wanted, const PoolFootprint& pool, const GpuBudget& budget) {
  const double g = pool.gpus_per_worker;
  if (budget.max_gpus >= 0 && wanted * g > budget.max_gpus) {
    if (budget.max_gpus < pool.min_workers * g) {
      return 0;
    }
    return std::max(pool.min_workers, positive(std::floor(budget.max_gpus / g)));
  }
  const double tolerance = budget.max_gpus >= 0 && budget.min_gpus >= 0 ? g : 0;
  if (budget.min_gpus >= 0 && wanted * g < budget.min_gpus - tolerance) {
    return std::max(pool.min_workers, positive(std::ceil(budget.min_gpus / g)));
  }
  return std::max(wanted, pool.min_workers);
}

}  // namespace stator::planner
