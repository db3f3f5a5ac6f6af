// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "stator/core/config.h"
#include "stator/core/result.h"

namespace stator::router {

/// How KV blocks may travel from a prefill worker to a decode worker: between workers that share
/// the value of a topology domain, only or preferably.
struct TransferRule {
  std::string domain;  ///< "rack": the taint dynamo.topology/rack=…; empty = anywhere
  bool required = false;
  double preferred_weight = 0.5;  ///< 0 … 1; of a preferred taint
};

struct DisaggregationConfig {
  /// Whether short work stays at the decode worker: "off", "isl_bounding" (little is uncached),
  /// "prefill_load" (prefill workers are busy) or "isl_or_load".
  std::string conditional = "off";
  uint32_t uncached_tokens_max = 2048;  ///< isl_bounding: fewer than this, and
  double uncached_ratio_max = 0.7;      ///< less than this part of the prompt
  double prefill_busy_fraction = -1;    ///< prefill_load: of max_num_batched_tokens; -1 = unset
  double decode_busy_fraction = -1;  ///< beyond this part of its blocks nothing stays; -1 = unset
  bool enforced = false;     ///< without prefill workers requests fail instead of running whole
  bool choose_pairs = true;  ///< both workers at once; else prefill first, then decode
  TransferRule transfer;
};

/// Declares its settings.
void describe(ConfigSchema& schema, DisaggregationConfig& config);

/// kInvalidArgument for an unknown policy, or a load policy without a threshold.
Status validate(const DisaggregationConfig& config);

}  // namespace stator::router
