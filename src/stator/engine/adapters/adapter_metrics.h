// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/engine/api/engine.h"

namespace stator::engine::adapters {

/// The series of one adapter. The gauges have the names built-in engines use, so that dashboards
/// need not tell them apart.
class AdapterMetrics {
 public:
  AdapterMetrics(Metrics& metrics, std::string_view engine);

  void update(const LoadReport& load);
  void set_up(bool up) { up_.set(up ? 1 : 0); }
  void set_asleep(bool asleep) { asleep_.set(asleep ? 1 : 0); }
  void count_failure(Code code);
  /// `what` an operator wanted: Control's name.
  void count_control(std::string_view what, bool done);

  Counter generated_tokens;
  Counter finished;
  Counter cancelled;
  Counter refused;        ///< by check_request() or lower(): never sent
  Counter poll_failures;  ///< metrics or health not answered
  Counter stalls;         ///< the server stood still, and its requests failed
  Counter bytes;          ///< of answers

 private:
  Metrics& metrics_;
  const std::string engine_;
  Gauge running_;
  Gauge waiting_;
  Gauge kv_used_;
  Gauge kv_total_;
  Gauge up_;
  Gauge asleep_;
};

}  // namespace stator::engine::adapters
