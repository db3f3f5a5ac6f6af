// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/lab/loadgen/records.h"
#include "stator/lab/loadgen/statistics.h"

namespace stator::loadgen {

/// Limits a request must keep to be good, in milliseconds; all that are given must be kept.
struct Goals {
  std::optional<double> time_to_first_token_ms;
  std::optional<double> inter_token_latency_ms;
  std::optional<double> request_latency_ms;
  bool any() const {
    return time_to_first_token_ms || inter_token_latency_ms || request_latency_ms;
  }
};
/// "time_to_first_token:200 inter_token_latency:20 request_latency:5000" (AIPerf's form), or ttft,
/// itl, e2e for short; separated by spaces or commas. kInvalidArgument otherwise.
Result<Goals> parse_goals(std::string_view text);

struct WarmUp {
  bool automatic = false;  ///< found by statistics::find_warm_up on mean latencies over time
  Duration duration{};     ///< requests sent earlier do not count
  uint64_t requests = 0;   ///< nor do the first ones sent
};

/// One reported quantity. `single` metrics have only a value (avg).
struct Metric {
  std::string_view tag;     ///< AIPerf's name
  std::string_view header;  ///< for people
  std::string_view unit;
  bool single = false;
  Summary values;
};

/// One piece of the run's timeline.
struct TimePiece {
  double at_s = 0;
  double requests_per_s = 0;       ///< answered
  double output_tokens_per_s = 0;  ///< of the requests answered in it
  double in_flight = 0;            ///< mean
  double latency_ms = 0;           ///< mean of the requests answered in it
};

/// What one run showed.
struct Figures {
  std::vector<Metric> metrics;
  std::map<std::string, uint64_t> outcomes;  ///< by outcome_name, warm-up left out
  std::map<std::string, uint64_t> errors;
  uint64_t warm_up_requests = 0;
  double warm_up_s = 0;
  bool steady = true;          ///< false: an automatic warm-up never ended
  bool usage_missing = false;  ///< some token counts are numbers of chunks
  uint64_t streamed = 0;       ///< answers that came as streams …
  uint64_t whole = 0;          ///< … and those that did not
  double duration_s = 0;
  std::vector<TimePiece> timeline;
  std::map<std::string_view, std::vector<double>> curves;  ///< 101 percentiles of each latency

  const Metric* find(std::string_view tag) const;
  /// avg of that metric; 0 if there is none.
  double value(std::string_view tag) const;
};

struct MeasureOptions {
  WarmUp warm_up;
  Goals goals;
  bool from_schedule = false;  ///< open loop: also measure from when requests were due
};

/// Turns records into figures, with AIPerf's definitions: a request starts just before it is sent;
/// time to first token = first − start; request latency = last − start; inter-token latency =
/// (latency − first) / (tokens − 1); throughput = totals / (last answer − first start). The
/// _from_schedule metrics start when the request was due instead, so that a stalled server cannot
/// hide the requests it kept from being sent (coordinated omission).
Figures measure(const RecordLog& records, const HistogramSeries& gaps,
                const MeasureOptions& options);

}  // namespace stator::loadgen
