// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "stator/core/result.h"
#include "stator/perf/engine_model.h"
#include "stator/perf/timing_model.h"

namespace stator::perf {

/// An engine model as the step model of a simulation or a planner: what prompts add to a pass, and
/// what its decodes take. The two may be engines cut differently, one for each side of a
/// disaggregated fleet. A pass is one rank's of attention.
class EngineModelTiming final : public TimingModel {
 public:
  EngineModelTiming(EngineModel prefill, EngineModel decode)
      : prefill_(std::move(prefill)), decode_(std::move(decode)) {}

  double prefill_ms(const PassShape& shape) const override;
  double decode_ms(const PassShape& shape) const override;
  bool reads_context() const override { return true; }

 private:
  EngineModel prefill_, decode_;
};

/// "model=DIR|ORG/NAME,system=h200_sxm[,backend=vllm][,tp=N][,weights=fp8][,kv=fp8][,database=DIR]".
Result<std::unique_ptr<TimingModel>> make_engine_timing(std::string_view text);

}  // namespace stator::perf
