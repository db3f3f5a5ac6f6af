// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/planner/inputs.h"
#include "stator/planner/opinions.h"

namespace stator::scaling {

/// One entry of `scheduling.external_plugins` in a planner's file.
struct PluginConfig {
  std::string id;
  planner::Stage stage = planner::Stage::kPropose;
  uint32_t priority = 0;
  std::string address;     ///< host:port
  double interval_s = 0;   ///< between two calls; 0: every tick
  bool holds_last = true;  ///< between calls its last answer counts; else it has no opinion
  std::vector<std::string> requires_fields;  ///< "predictions", "observations.traffic", …
};

/// When a plugin is called, and what counts while it is not: a pure core.
/// After five failures in a row it is left alone for 30 s, then tried once.
class PluginTurn {
 public:
  enum class Circuit : uint8_t { kClosed, kOpen, kHalfOpen };
  explicit PluginTurn(double interval_s) : interval_s_(interval_s) {}
  bool due(double now_s);
  void succeed(double now_s);
  void fail(double now_s);
  Circuit circuit() const { return circuit_; }

 private:
  const double interval_s_;
  double called_s_ = -1e18, opened_s_ = 0;
  uint32_t failures_ = 0;
  Circuit circuit_ = Circuit::kClosed;
};

/// What plugins are told of a tick.
struct PluginContext {
  const planner::Inputs& inputs;
  uint64_t tick = 0;
  planner::Forecast forecast;                   ///< what is expected by now
  const planner::Decision* proposal = nullptr;  ///< of the policy; null before there is one
};

/// Asks plugins of other processes over gRPC, in the words of Dynamo's planner. Those of a stage
/// are asked at once, each for 5 s at most; one that fails has no opinion. Used by one thread,
/// which waits.
class PluginHost {
 public:
  static constexpr size_t kPluginsMax = 64;
  /// kInvalidArgument for more than that, or two of one name. `clock` and `metrics` outlive it.
  static Result<std::unique_ptr<PluginHost>> open(std::vector<PluginConfig> plugins, Clock& clock,
                                                  Metrics& metrics);
  virtual ~PluginHost() = default;
  PluginHost(const PluginHost&) = delete;
  PluginHost& operator=(const PluginHost&) = delete;

  /// What plugins of the first stage expect, by their priority; each field from the first that
  /// says it.
  virtual planner::Forecast predict(const PluginContext& context) = 0;
  /// Opinions of the other three stages, in their order.
  virtual std::vector<planner::Opinion> opinions(const PluginContext& context) = 0;

 protected:
  PluginHost() = default;
};

}  // namespace stator::scaling
