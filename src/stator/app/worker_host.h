// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stator/app/engine_servers.h"
#include "stator/app/own_engine.h"
#include "stator/app/settings.h"
#include "stator/app/signals.h"
#include "stator/app/worker_meters.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/random.h"
#include "stator/core/result.h"
#include "stator/discovery/discovery.h"
#include "stator/discovery/instance_record.h"
#include "stator/engine/api/engine.h"
#include "stator/engine/api/model_runner.h"
#include "stator/engine/api/pool_runner.h"
#include "stator/engine/core/bad_words.h"
#include "stator/engine/core/engine_service.h"
#include "stator/engine/core/pooling_service.h"
#include "stator/engine/cpu/kv_arena.h"
#include "stator/frontend/model_assets.h"
#include "stator/frontend/model_facts.h"
#include "stator/storage/block_name.h"

namespace stator::engine::handoff {
class Port;
}

namespace stator::app {

/// A model folder opened for serving, shared by the workers of this process.
class WorkerHost {
 public:
  /// Whether the model's tokenizer and template are kept though no engine needs them.
  enum class Texts : uint8_t { kAsNeeded, kKept };
  struct Wanted {
    /// The engines are those, and MODEL may be empty: what they say they loaded.
    EngineServers* servers = nullptr;
    Texts texts = Texts::kAsNeeded;
  };
  /// Reads tokenizer, template and, for the cpu engine, the weights. Errors name the file to fix.
  static Result<std::unique_ptr<WorkerHost>> open(const std::string& model,
                                                  const Settings& settings, Clock& clock,
                                                  Metrics& metrics, Wanted wanted);
  ~WorkerHost();

  struct Worker {
    discovery::InstanceRecord record;  ///< address still to be filled in
    std::unique_ptr<engine::Engine> engine;
    EngineEvents events;  ///< of an engine server
    /// The engine, if it is a server: tells whether it answers. Else null.
    engine::adapters::AdapterEngine* server = nullptr;
    /// What operators may ask of an engine of this process; null for a server.
    std::unique_ptr<OwnEngine> own;
    /// Of an engine of ours that computes prompts for others, or goes on from theirs. Else null.
    std::shared_ptr<engine::handoff::Port> port;
    /// Somebody may still fetch a prompt that was computed here.
    bool owes_prompts() const;

    TimePoint ready_at{};  ///< of a simulated engine: it loads weights until then

    /// Gets the record when it has changed; empty: nobody wants to know.
    std::function<void(const discovery::InstanceRecord&)> on_record;

    /// Brings the record up to date, and whether that changed it: an engine server that does not
    /// answer or sleeps gets nothing new, and its adapters come and go.
    bool refresh(TimePoint now);
  };
  /// Makes and starts one more engine on the shared weights.
  Result<Worker> make_worker();

  /// How many workers this process is to have: one for each engine server, else as worker.count
  /// says, or as many as are usual for this kind of process.
  uint32_t count(uint32_t usual) const;
  const std::string& model_dir() const { return model_dir_; }
  /// Null: no engine needs them, and they were not to be kept.
  std::shared_ptr<const frontend::ModelAssets> assets() const { return assets_; }
  /// Of the worker made last: its engine server's URL without a password, "local" for our own.
  std::string shown_place() const;
  const std::string& model_name() const { return model_name_; }

 private:
  struct Loaded;
  WorkerHost(const Settings& settings, Clock& clock, Metrics& metrics);
  Result<std::unique_ptr<engine::ModelRunner>> make_runner(engine::EngineConfig& config) const;
  Result<std::unique_ptr<engine::PoolRunner>> make_pool_runner() const;
  engine::VocabularySource vocabulary_source() const;
  engine::TextEncoder text_encoder() const;
  engine::cpu::KvLayout kv_layout() const;
  Status open_tiers();
  Result<inference::WorkerRole> own_role() const;
  bool some_hand_over() const;
  Result<std::shared_ptr<engine::handoff::Port>> open_port(inference::WorkerRole role,
                                                           const engine::EngineConfig& config,
                                                           uint64_t block_bytes);
  engine::PoolingConfig make_pooling_config(const engine::EngineConfig& config) const;
  Result<Worker> make_own_engine();
  Result<Worker> make_server_engine();
  void fill_record(Worker& worker);

  const Settings& settings_;
  Clock& clock_;
  Metrics& metrics_;
  Random random_;
  std::string model_name_;
  std::string model_dir_;
  std::string chat_template_;                            // in place of the folder's; empty: none
  std::shared_ptr<const frontend::ModelAssets> assets_;  // null: only the facts are needed
  frontend::ModelFacts facts_;
  std::unique_ptr<Loaded> loaded_;
  uint32_t vocab_size_ = 0;
  std::unique_ptr<WorkerMeters> meters_;
  storage::Digest space_{};  // what the engines' KV blocks are; zero while nobody asks
  uint32_t made_ = 0;
  EngineServers* servers_ = nullptr;  // the caller's
};

/// The engine servers of --engine and --url, waited for; null for an engine of our own.
Result<std::unique_ptr<EngineServers>> connect_servers(const Settings& settings, Signals& signals,
                                                       Clock& clock, Metrics& metrics);

/// Waits for a signal. Meanwhile tells discovery what changes about engines.
void wait_and_report(Signals& signals, const Clock& clock, std::vector<WorkerHost::Worker>& workers,
                     std::span<const std::unique_ptr<discovery::Registration>> registrations);

/// The component a worker registers as.
std::string component_of(const WorkerSettings& worker, const engine::EngineInfo& info);

/// Resolves MODEL to a folder, showing download progress on a terminal.
Result<std::string> resolve_model_dir(const std::string& model, const weights::HubConfig& config);
/// The same for a MODEL that may be left out, before anything is waited for: a typing error is told
/// at once, not when an engine server has answered.
Status check_model(const std::string& model, const Settings& settings);

}  // namespace stator::app
