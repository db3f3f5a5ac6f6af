// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "stator/discovery/instance_record.h"
#include "stator/engine/api/engine.h"
#include "stator/kv/event_log.h"

namespace stator::session {

/// Accepts everything; steps are driven by the benchmark's thread.
class BenchEngine final : public engine::Engine {
 public:
  const engine::EngineInfo& info() const override { return info_; }
  Status start() override { return {}; }
  void stop() override {}
  engine::SessionId open_session(engine::EngineSink& sink) override {
    sink_ = &sink;
    return engine::SessionId(1);
  }
  void close_session(engine::SessionId /*session*/) override { sink_ = nullptr; }
  Status submit(engine::SessionId /*session*/, inference::EngineRequest /*request*/) override {
    ++submitted_;
    submitted_.notify_all();
    return {};
  }
  void cancel(engine::SessionId /*session*/, inference::RequestKey /*key*/) override {}
  engine::LoadReport load() const override { return {}; }
  kv::EventLog& events() override { return events_; }
  void reset_prefix_cache() override {}

  void wait_submitted(uint32_t count) {
    for (uint32_t seen = submitted_; seen < count; seen = submitted_) {
      submitted_.wait(seen);
    }
  }
  engine::EngineSink& sink() { return *sink_; }

 private:
  engine::EngineInfo info_;
  kv::EventLog events_;
  std::atomic<engine::EngineSink*> sink_ = nullptr;
  std::atomic<uint32_t> submitted_ = 0;
};

inline inference::StepOutput make_step(uint32_t sequences, uint32_t offset) {
  inference::StepOutput step;
  step.deltas.resize(sequences);
  step.tokens.assign(sequences, 12345);
  for (uint32_t i = 0; i < sequences; ++i) {
    step.deltas[i].key = {RequestId(i + 1), Attempt(0)};
    step.deltas[i].offset = offset;
    step.deltas[i].token_begin = i;
    step.deltas[i].token_count = 1;
  }
  return step;
}

inline discovery::InstanceRecord make_record() {
  discovery::InstanceRecord record;
  record.key.worker = WorkerId(7);
  record.incarnation = Incarnation(1);
  record.address = "local";
  return record;
}

}  // namespace stator::session
