// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "stator/perf/engine_model.h"

namespace stator::perf {
namespace {

struct Base {
  std::string_view backend;
  PassParts decode, context;
};
/// Of one kind of GPU, or of one kind of model and precision of its experts.
struct Factor {
  std::string_view backend, name;
  double decode, context, first_token;
};

// Printed by bench/planning/fit_efficiency.py.
// clang-format off
constexpr std::array<Base, 3> kBases = {{
{"sglang", {1, 1.377, 1.763, 0.03166, 1, 1.624, 0.1286, 0.07871, 0.1801, 0.1709, 0.0001234},
 {1.359, 0.1098, 1, 10.83, 4.747, 0.585, 0.9704, 0.06796, 0.007943, 0.4981, 6.614}},
{"trtllm", {4.917, 13.17, 2.917, 0.2043, 1, 0.7065, 0.02212, 0.3151, 0.1284, 0.1979, 0.0008897},
 {1.275, 0.3001, 1.358, 0.4889, 1.994, 0.4141, 0.02342, 7.006, 0.1687, 1.08, 5.966}},
{"vllm", {3.792, 9.392, 2.966, 0.1301, 1, 10.49, 0.03234, 0.4787, 0.08955, 0.0846, 0.0003532},
 {1.151, 0.1307, 1.597, 0.5349, 1, 0.4022, 0.007841, 10.04, 0.007841, 0.4946, 7.59}},
}};
constexpr std::array<Factor, 43> kFactors = {{
{"sglang", "b200_sxm", 0.5708, 1.888, 0.6908},
{"sglang", "b300_sxm", 0.5144, 1.995, 0.4915},
{"sglang", "gb200", 0.4, 0.4, 1.894},
{"sglang", "gb300", 0.4098, 0.6364, 1.428},
{"sglang", "h100_sxm", 0.5277, 0.8298, 1.138},
{"sglang", "h200_sxm", 0.6001, 1.2, 0.6087},
{"sglang", "dense:bfloat16", 0.4, 0.9533, 1.763},
{"sglang", "dense:fp8_block", 1.427, 0.4, 0.8759},
{"sglang", "hybrid:bfloat16", 0.4, 0.8962, 0.8807},
{"sglang", "hybrid:fp8_block", 0.4178, 1.301, 1.063},
{"sglang", "hybrid:nvfp4", 0.4, 1.299, 1.003},
{"sglang", "mla:fp8_block", 0.427, 1.197, 0.6196},
{"sglang", "mla:nvfp4", 0.4, 0.7779, 0.7534},
{"sglang", "moe:fp8_block", 0.4, 1.149, 0.8456},
{"trtllm", "b200_sxm", 0.5105, 1.379, 0.9796},
{"trtllm", "b300_sxm", 0.4262, 1.16, 0.6904},
{"trtllm", "gb200", 0.4622, 0.452, 1.931},
{"trtllm", "gb300", 0.4, 2.017, 0.4918},
{"trtllm", "h100_sxm", 0.5237, 1.171, 1.696},
{"trtllm", "h200_sxm", 0.5003, 0.7214, 1.695},
{"trtllm", "dense:bfloat16", 0.4269, 0.6018, 0.9462},
{"trtllm", "dense:fp8", 0.4043, 0.7581, 0.9514},
{"trtllm", "dense:nvfp4", 0.4681, 0.758, 0.9283},
{"trtllm", "mla:fp8", 0.5289, 0.7282, 2.348},
{"trtllm", "mla:nvfp4", 0.4705, 0.6646, 1.978},
{"trtllm", "moe:fp8", 0.5388, 0.8908, 1.04},
{"trtllm", "moe:fp8_block", 0.5747, 1.11, 1.034},
{"trtllm", "moe:w4a16_mxfp4", 0.823, 2.933, 0.6086},
{"trtllm", "moe:w4a8_mxfp4_mxfp8", 0.4362, 1.67, 0.6084},
{"vllm", "b200_sxm", 0.5261, 0.8458, 0.8828},
{"vllm", "b300_sxm", 0.4812, 0.9952, 0.6939},
{"vllm", "gb200", 0.4966, 0.4748, 1.556},
{"vllm", "h100_sxm", 0.5387, 0.4, 1.049},
{"vllm", "h200_sxm", 0.5959, 0.4305, 1.231},
{"vllm", "dense:bfloat16", 0.5503, 1.638, 0.8908},
{"vllm", "dense:fp8", 0.5381, 0.7683, 0.9838},
{"vllm", "dense:nvfp4", 0.6077, 0.9399, 0.8361},
{"vllm", "mla:int4_wo", 0.8816, 3.122, 0.6391},
{"vllm", "mla:nvfp4", 0.8078, 0.4, 2.201},
{"vllm", "moe:fp8", 0.8162, 1.822, 0.9062},
{"vllm", "moe:nvfp4", 0.7228, 1.635, 0.8309},
{"vllm", "moe:w4a16_mxfp4", 0.6847, 0.6342, 1.724},
{"vllm", "moe:w4a8_mxfp4_mxfp8", 0.6349, 1.071, 0.9708},
}};
// clang-format on

/// The factor of that name; the mean of its kind where nothing was measured.
Factor find_factor(std::string_view backend, std::string_view name, bool is_system) {
  Factor mean{.backend = backend, .name = name, .decode = 0, .context = 0, .first_token = 0};
  double count = 0;
  for (const Factor& factor : kFactors) {
    const bool same_kind = (factor.name.find(':') == std::string_view::npos) == is_system;
    if (factor.backend != backend || !same_kind) {
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
  const auto root = [&](double sum) { return count > 0 ? std::exp(sum / count) : 1; };
  mean.decode = root(mean.decode);
  mean.context = root(mean.context);
  mean.first_token = root(mean.first_token);
  return mean;
}

}  // namespace

Efficiency find_efficiency(const EngineSpec& spec) {
  const std::string_view backend = name_of(spec.backend);
  const Base& base = *std::ranges::find(kBases, backend, &Base::backend);
  const ModelConfig& model = spec.model;
  const std::string_view kind = model.is_hybrid() ? "hybrid"
                                : model.is_mla()  ? "mla"
                                : model.is_moe()  ? "moe"
                                                  : "dense";
  const Factor system = find_factor(backend, spec.system.name, true);
  const Factor family = find_factor(backend, fmt::format("{}:{}", kind, spec.experts.name), false);
  Efficiency out;
  out.first_token = system.first_token * family.first_token;
  for (size_t i = 0; i < kParts; ++i) {
    out.decode[i] = base.decode[i] * system.decode * family.decode;
    out.context[i] = base.context[i] * system.context * family.context;
  }
  return out;
}

}  // namespace stator::perf
