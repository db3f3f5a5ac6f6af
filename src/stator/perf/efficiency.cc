// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "stator/perf/detail/efficiency_tables.h"
#include "stator/perf/engine_model.h"

namespace stator::perf {
namespace {

using detail::EfficiencyFactor;

enum class Of : uint8_t { kSystem, kFamily, kShape };

Of kind_of(std::string_view name) {
  return name.find(':') != std::string_view::npos                      ? Of::kFamily
         : !name.empty() && name.front() >= '0' && name.front() <= '9' ? Of::kShape
                                                                       : Of::kSystem;
}

/// Nothing is faster than light, though experts that few tokens choose, narrow keys and collectives
/// in switches do less than is counted. It holds where factors of a GPU and of a model meet that
/// were never measured together.
constexpr PassParts kLeast = {1, 0, 0.6, 0, 0.6, 0.5, 0, 0, 0, 0, 0};
/// Kernels that were measured alone run beside others in an engine.
constexpr double kOverlap = 0.4;

/// The factor of that name. Where nothing was measured: the mean of GPUs or families, one for
/// shapes.
EfficiencyFactor find_factor(std::string_view backend, PartsOf parts, std::string_view name,
                             Of kind) {
  EfficiencyFactor mean{.parts = parts,
                        .backend = backend,
                        .name = name,
                        .decode = 0,
                        .context = 0,
                        .first_token = 0};
  double count = 0;
  for (const EfficiencyFactor& factor : detail::kEfficiencyFactors) {
    if (factor.backend != backend || factor.parts != parts || kind_of(factor.name) != kind) {
      continue;
    }
    if (factor.name == name) {
      return factor;
    }
    mean.decode += std::log(factor.decode);
    mean.context += std::log(factor.context);
    mean.first_token += std::log(factor.first_token);
    ++count;
  }
  const auto root = [&](double sum) {
    return count > 0 && kind != Of::kShape ? std::exp(sum / count) : 1;
  };
  mean.decode = root(mean.decode);
  mean.context = root(mean.context);
  mean.first_token = root(mean.first_token);
  return mean;
}

/// Powers of how many ranks share attention, of ranks of attention, and of experts' ranks where
/// there are several of those and where there are not.
double cut_factor(const std::array<double, 4>& powers, const Parallelism& p) {
  const double experts = std::log(p.moe_ep);
  return std::exp(powers[0] * std::log(p.tp) + powers[1] * std::log(p.dp) +
                  powers[p.dp > 1 ? 2 : 3] * experts);
}

}  // namespace

std::string family_of(const EngineSpec& spec) {
  const ModelConfig& model = spec.model;
  const std::string_view kind = model.is_hybrid() ? "hybrid"
                                : model.is_mla()  ? "mla"
                                : model.is_moe()  ? "moe"
                                                  : "dense";
  return fmt::format("{}:{}", kind, spec.experts.name);
}

std::string shape_of(const ModelConfig& model) {
  return fmt::format("{}x{}x{}", model.layers, model.hidden, model.heads);
}

Efficiency find_efficiency(const EngineSpec& spec, PartsOf parts) {
  const std::string_view backend = name_of(spec.backend);
  const auto& base = *std::ranges::find_if(detail::kEfficiencyBases, [&](const auto& each) {
    return each.backend == backend && each.parts == parts;
  });
  const std::string family = family_of(spec), shape = shape_of(spec.model);
  const EfficiencyFactor factors[] = {
      find_factor(backend, parts, spec.system.name, Of::kSystem),
      find_factor(backend, parts, family, Of::kFamily),
      find_factor(backend, parts, shape, Of::kShape),
  };
  double decode = cut_factor(base.decode_cut, spec.parallel);
  double context = cut_factor(base.context_cut, spec.parallel);
  Efficiency out{.decode_power = base.decode_power};
  for (const EfficiencyFactor& factor : factors) {
    decode *= factor.decode;
    context *= factor.context;
    out.first_token *= factor.first_token;
  }
  for (size_t i = 0; i < kParts; ++i) {
    const double least = kLeast[i] * (parts == PartsOf::kLight ? 1 : kOverlap);
    out.decode[i] = std::max(least, base.decode[i] * decode);
    out.context[i] = std::max(least, base.context[i] * context);
  }
  return out;
}

}  // namespace stator::perf
