// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/epp/usage_reader.h"

namespace stator::epp {

class EndpointPool;

/// How one request went, from the picker's side. Durations from its headers on.
struct RequestReport {
  size_t request_bytes = 0;
  size_t response_bytes = 0;
  TokenUsage usage;
  Duration whole{};
  Duration first_byte{};  ///< of the answer's body; zero: there was none
  bool is_answered = false;
};

/// The metrics of pickers, by the names that dashboards of the Gateway API Inference Extension ask
/// for. Of more than kModelsMax pairs of models the later ones are counted together, as "other":
/// clients choose the names. On one thread, but for what `metrics` reads.
class PickerMetrics {
 public:
  static constexpr size_t kModelsMax = 100;

  /// Series of one model as the client named it, and as the server gets it.
  struct Model {
    Counter requests;
    Gauge running;
    Histogram seconds;
    Histogram first_byte_seconds;
    Histogram token_seconds;
    Histogram normalized_seconds;
    Histogram request_bytes;
    Histogram response_bytes;
    Histogram input_tokens;
    Histogram output_tokens;
    Histogram cached_tokens;
    MetricLabels labels;
  };

  /// `pool` outlives the scrapes of `metrics`; `name` is the pool's, for its gauges.
  PickerMetrics(Metrics& metrics, const EndpointPool& pool, std::string_view name);

  Model& of(std::string_view model, std::string_view target);
  void on_refused(const Model& model, int status);
  void on_attempt(bool chosen) { (chosen ? attempts_ : failures_).add(); }
  void on_rewritten(const Model& model);
  void on_pick(Duration took, double hit_ratio);
  static void on_end(Model& model, const RequestReport& report);

 private:
  Metrics& metrics_;
  std::map<std::pair<std::string, std::string>, Model> models_;
  Counter attempts_;
  Counter failures_;
  Histogram seconds_;
  Histogram hit_ratio_;
};

}  // namespace stator::epp
