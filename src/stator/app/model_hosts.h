// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stator/app/invocation.h"
#include "stator/app/worker_host.h"

namespace stator::app {

/// The models of one process, each opened once. Hosts refer to settings of their own, which live
/// here: not copied, not moved.
class ModelHosts {
 public:
  /// One for every MODEL of the command, in that order; one if there is none. With several,
  /// worker.model_name is a list of as many names, or empty: see check_models(). kInvalidArgument
  /// for two of one name.
  static Result<std::unique_ptr<ModelHosts>> open(const Invocation& invocation,
                                                  const Settings& settings, Clock& clock,
                                                  Metrics& metrics, WorkerHost::Wanted wanted);

  std::span<const std::unique_ptr<WorkerHost>> all() const { return hosts_; }
  /// With commas between.
  std::string names() const;

 private:
  ModelHosts() = default;

  std::deque<Settings> settings_;
  std::vector<std::unique_ptr<WorkerHost>> hosts_;
};

/// check_model() of every MODEL, and whether the settings are good for so many, before anything is
/// waited for.
Status check_models(const Invocation& invocation, const Settings& settings);

}  // namespace stator::app
