// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/engine/api/engine.h"
#include "stator/engine/core/scheduler.h"
#include "stator/kv/event_log.h"
#include "stator/net/virtual_time.h"

namespace stator::fault_sim {

/// An engine on virtual time: the production scheduler and block pool, and a runner whose modelled
/// step time passes there. Single-threaded; sinks are called from events of the time.
class VirtualEngine final : public engine::Engine {
 public:
  /// `config` must come from engine::resolve. `time` outlives it.
  VirtualEngine(engine::EngineConfig config, std::unique_ptr<engine::ModelRunner> runner,
                net::VirtualTime& time);

  const engine::EngineInfo& info() const override { return info_; }
  Status start() override { return {}; }
  /// What runs ends with kDraining.
  void stop() override;
  engine::SessionId open_session(engine::EngineSink& sink) override;
  void close_session(engine::SessionId session) override;
  Status submit(engine::SessionId session, inference::EngineRequest request) override;
  void cancel(engine::SessionId session, inference::RequestKey key) override;
  engine::LoadReport load() const override { return scheduler_.load(); }
  kv::EventLog& events() override { return events_; }
  void reset_prefix_cache() override;

  /// A hung engine takes requests and does nothing, until it is let go.
  void set_hung(bool hung);
  /// Steps take so many times longer.
  void set_slowness(double factor) { slowness_ = factor; }
  bool idle() const { return !stepping_ && commands_.empty() && scheduler_.idle(); }
  const engine::Scheduler& scheduler() const { return scheduler_; }

 private:
  struct Submit {
    engine::SessionId session;
    inference::EngineRequest request;
  };
  struct Cancel {
    engine::SessionId session;
    inference::RequestKey key;
  };
  struct Close {
    engine::SessionId session;
  };
  using Command = std::variant<Submit, Cancel, Close>;

  void push(Command command);
  void schedule(Duration delay, void (VirtualEngine::*what)());
  void apply_commands();
  void begin_step();
  void end_step();
  void deliver(std::vector<engine::SessionOutput>& outputs);

  const engine::EngineConfig config_;
  const std::unique_ptr<engine::ModelRunner> runner_;
  net::VirtualTime& time_;
  engine::EngineInfo info_;
  engine::Scheduler scheduler_;
  kv::EventLog events_;
  std::vector<Command> commands_;  // between two steps
  std::vector<engine::Sampled> sampled_;
  FlatMap<engine::SessionId, engine::EngineSink*> sinks_;
  uint64_t last_session_ = 0;
  double slowness_ = 1;
  bool stepping_ = false;
  bool hung_ = false;
  bool step_is_over_ = false;  // while it hung
  bool stopped_ = false;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);  // seen by events
};

}  // namespace stator::fault_sim
