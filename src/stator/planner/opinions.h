// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace stator::planner {

/// What others than the core have to say in a tick, and how that is put together: as NVIDIA
/// Dynamo's planner does with its plugins. All of it is pure.

/// What is expected of the next window. A field that is absent: no opinion.
struct Forecast {
  std::optional<double> requests;  ///< in a window as long as the last one
  std::optional<double> input_tokens, output_tokens;
  std::optional<double> kv_hit_rate, accept_length;
  friend bool operator==(const Forecast&, const Forecast&) = default;
};
/// Takes from `later` what `first` leaves open: who comes first has its way, field by field.
void fill(Forecast& first, const Forecast& later);

enum class Stage : uint8_t { kPredict, kPropose, kReconcile, kConstrain };
/// "predict", "propose", …
const char* name_of(Stage stage);

enum class TargetKind : uint8_t { kSet, kAtLeast, kAtMost };
struct Target {
  bool prefill = false;  ///< else the pool that decodes, or the only one
  TargetKind kind = TargetKind::kSet;
  uint32_t workers = 0;
  friend bool operator==(const Target&, const Target&) = default;
};

/// One answer of one plugin.
struct Opinion {
  std::string plugin;
  Stage stage = Stage::kPropose;
  uint32_t priority = 0;  ///< the smaller, the weightier
  bool final = false;     ///< nobody else of the stage counts
  bool rejects = false;   ///< nothing is to be changed
  std::vector<Target> targets;
  std::string reason;
};

/// Sizes that a stage arrives at; absent: no opinion.
struct StageResult {
  std::optional<uint32_t> prefill, decode;
  std::string rejected_by;  ///< plugin and its reason; empty: nobody rejected
  std::string decided_by;   ///< plugins whose word changed a size
};

/// One stage: a rejection ends it; the final opinion of the smallest priority stands alone; else
/// each pool takes the SET of the smallest priority, or `before`, at most the least AT_MOST and at
/// least the greatest AT_LEAST, which wins over the former. Constraints may not SET, and none of
/// them is final. Opinions of other stages are left out.
StageResult merge(Stage stage, const StageResult& before, std::span<const Opinion> opinions);

}  // namespace stator::planner
