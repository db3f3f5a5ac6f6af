// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stator/cli/settings.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/random.h"
#include "stator/core/result.h"
#include "stator/engine/api/engine.h"
#include "stator/frontend/model_assets.h"
#include "stator/runtime/instance_record.h"

namespace stator::cli {

/// A model folder opened for serving, shared by the workers of this process.
class WorkerHost {
 public:
  /// Reads tokenizer, template and, for the cpu engine, the weights. Errors name the file to fix.
  static Result<std::unique_ptr<WorkerHost>> open(const std::string& model,
                                                  const Settings& settings, Clock& clock,
                                                  Metrics& metrics);
  ~WorkerHost();

  struct Worker {
    runtime::InstanceRecord record;  ///< address still to be filled in
    std::unique_ptr<engine::Engine> engine;
  };
  /// Makes and starts one more engine on the shared weights.
  Result<Worker> make_worker();

  const std::string& model_name() const { return model_name_; }

 private:
  struct Loaded;
  WorkerHost(const Settings& settings, Clock& clock, Metrics& metrics);
  Result<std::unique_ptr<engine::ModelRunner>> make_runner(engine::EngineConfig& config) const;

  const Settings& settings_;
  Clock& clock_;
  Metrics& metrics_;
  Random random_;
  std::string model_name_;
  std::string model_dir_;
  std::shared_ptr<const frontend::ModelAssets> assets_;
  std::unique_ptr<Loaded> loaded_;
  uint32_t made_ = 0;
};

/// Resolves MODEL to a folder, showing download progress on a terminal.
Result<std::string> resolve_model_dir(const std::string& model, const weights::HubConfig& config);

/// First and last id of the longest run of ordinary tokens: simulated output decodes to text
/// instead of markers.
std::pair<TokenId, TokenId> printable_tokens(const tokenizer::Tokenizer& tokenizer);

}  // namespace stator::cli
