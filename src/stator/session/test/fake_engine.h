// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/engine/api/engine.h"
#include "stator/kv/event_log.h"

namespace stator::session::test {

/// An engine that does what the test says, on the test's thread.
class FakeEngine final : public engine::Engine {
 public:
  const engine::EngineInfo& info() const override { return info_; }
  Status start() override { return {}; }
  void stop() override {}

  engine::SessionId open_session(engine::EngineSink& sink) override {
    const MutexLock lock(mutex_);
    const engine::SessionId id(++last_session_);
    sinks_[id] = &sink;
    changed_.notify_all();
    return id;
  }
  void close_session(engine::SessionId session) override {
    const MutexLock sink_lock(sink_mutex_);  // as the contract says: wait for a running on_step
    const MutexLock lock(mutex_);
    sinks_.erase(session);
    std::erase_if(running_, [&](const auto& entry) { return entry.second.session == session; });
    changed_.notify_all();
  }

  Status submit(engine::SessionId session, inference::EngineRequest request) override {
    std::optional<inference::StepOutput> at_once;
    {
      const MutexLock lock(mutex_);
      if (refusal_) {
        return refusal_->clone();
      }
      const inference::RequestKey key = request.key;
      running_[key] = {session, std::move(request)};
      if (answer_inside_submit_) {
        at_once = step_of(key, {1}, 0, inference::FinishReason::kNone);
      }
      changed_.notify_all();
    }
    if (at_once) {
      deliver(session, std::move(*at_once));
    }
    return {};
  }
  void cancel(engine::SessionId /*session*/, inference::RequestKey key) override {
    const MutexLock lock(mutex_);
    if (running_.erase(key) > 0) {
      ++cancelled_;
    }
    changed_.notify_all();
  }

  engine::LoadReport load() const override {
    const MutexLock lock(mutex_);
    engine::LoadReport load = load_;
    load.running = static_cast<uint32_t>(running_.size());
    return load;
  }
  kv::EventLog& events() override { return events_; }
  void reset_prefix_cache() override { events_.append(kv::AllCleared()); }

  // The script.

  void refuse_with(Error error) {
    const MutexLock lock(mutex_);
    refusal_ = std::move(error);
  }
  void answer_inside_submit() {
    const MutexLock lock(mutex_);
    answer_inside_submit_ = true;
  }
  void set_cached_blocks(uint32_t blocks) {
    const MutexLock lock(mutex_);
    load_.kv_cached_blocks = blocks;
  }

  /// One step with these tokens for one request.
  void emit(inference::RequestKey key, std::vector<TokenId> tokens, uint32_t offset,
            inference::FinishReason finish = inference::FinishReason::kNone) {
    deliver(session_of(key), step_of(key, std::move(tokens), offset, finish));
  }
  void fail(inference::RequestKey key, Error error) {
    inference::StepOutput step;
    step.failures.push_back({key, std::move(error)});
    deliver(session_of(key), std::move(step));
  }
  void emit_step(engine::SessionId session, inference::StepOutput step) {
    deliver(session, std::move(step));
  }

  bool wait_running(inference::RequestKey key) {
    return wait([&]() STATOR_REQUIRES(mutex_) { return running_.contains(key); });
  }
  bool wait_running_count(size_t count) {
    return wait([&]() STATOR_REQUIRES(mutex_) { return running_.size() == count; });
  }
  bool wait_sessions(size_t count) {
    return wait([&]() STATOR_REQUIRES(mutex_) { return sinks_.size() == count; });
  }
  bool wait_cancelled(size_t count) {
    return wait([&]() STATOR_REQUIRES(mutex_) { return cancelled_ >= count; });
  }
  inference::EngineRequest request(inference::RequestKey key) {
    const MutexLock lock(mutex_);
    return running_.at(key).request;
  }
  engine::SessionId session_of(inference::RequestKey key) {
    const MutexLock lock(mutex_);
    const auto found = running_.find(key);
    return found == running_.end() ? engine::SessionId() : found->second.session;
  }

 private:
  struct Running {
    engine::SessionId session;
    inference::EngineRequest request;
  };

  template <typename Predicate>
  bool wait(Predicate predicate) {
    MutexLock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), predicate);
  }

  static inference::StepOutput step_of(inference::RequestKey key, std::vector<TokenId> tokens,
                                       uint32_t offset, inference::FinishReason finish) {
    inference::StepOutput step;
    inference::Delta delta;
    delta.key = key;
    delta.offset = offset;
    delta.token_count = static_cast<uint32_t>(tokens.size());
    delta.finish = finish;
    step.deltas.push_back(delta);
    step.tokens = std::move(tokens);
    return step;
  }

  void deliver(engine::SessionId session, inference::StepOutput step) {
    const MutexLock sink_lock(sink_mutex_);
    engine::EngineSink* sink = nullptr;
    {
      const MutexLock lock(mutex_);
      const auto found = sinks_.find(session);
      sink = found == sinks_.end() ? nullptr : found->second;
      for (const inference::Delta& delta : step.deltas) {
        if (delta.finish != inference::FinishReason::kNone) {
          running_.erase(delta.key);
        }
      }
      for (const inference::Failure& failure : step.failures) {
        running_.erase(failure.key);
      }
    }
    if (sink != nullptr) {
      sink->on_step(std::move(step));
    }
  }

  engine::EngineInfo info_;
  kv::EventLog events_{0, {.events_max = 64}};
  Mutex sink_mutex_;  // taken before mutex_
  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  uint64_t last_session_ STATOR_GUARDED_BY(mutex_) = 0;
  std::map<engine::SessionId, engine::EngineSink*> sinks_ STATOR_GUARDED_BY(mutex_);
  std::map<inference::RequestKey, Running> running_ STATOR_GUARDED_BY(mutex_);
  std::optional<Error> refusal_ STATOR_GUARDED_BY(mutex_);
  engine::LoadReport load_ STATOR_GUARDED_BY(mutex_);
  bool answer_inside_submit_ STATOR_GUARDED_BY(mutex_) = false;
  size_t cancelled_ STATOR_GUARDED_BY(mutex_) = 0;
};

}  // namespace stator::session::test
