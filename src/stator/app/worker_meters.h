// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/app/settings.h"
#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/engine/api/engine.h"
#include "stator/telemetry/span_exporter.h"

namespace stator::app {

/// What is counted and traced of the workers of a process: metrics under the names that NVIDIA
/// Dynamo's dashboards know, and spans below those of the frontends.
class WorkerMeters {
 public:
  /// kInvalidArgument for a trace.otlp_endpoint that is none. All arguments outlive this.
  static Result<std::unique_ptr<WorkerMeters>> start(const Settings& settings, Clock& clock,
                                                     Metrics& metrics);

  /// The engine of worker `id`, counted. What it says about its requests may come after this is
  /// gone.
  std::unique_ptr<engine::Engine> watch(std::unique_ptr<engine::Engine> engine, WorkerId id,
                                        const std::string& model);
  /// The model's files are read and an engine runs on them.
  void loaded();

 private:
  WorkerMeters(const Settings& settings, Clock& clock, Metrics& metrics);
  MetricLabels place(const engine::EngineInfo& info) const;

  const Settings& settings_;
  Clock& clock_;
  Metrics& metrics_;
  const TimePoint started_;
  bool loaded_ = false;
  std::shared_ptr<telemetry::SpanExporter> exporter_;  // with engines' callbacks; null: no spans
};

}  // namespace stator::app
