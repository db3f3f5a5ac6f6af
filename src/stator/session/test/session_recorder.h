// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <string>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/session/worker_session.h"

namespace stator::session::test {

/// Writes down what a session says, as short lines, and lets the test wait for them.
class SessionRecorder final : public SessionEvents {
 public:
  void on_opened(WorkerId /*worker*/) override { note("opened"); }
  void on_load(WorkerId /*worker*/, const engine::LoadReport& load) override {
    const MutexLock lock(mutex_);
    loads_.push_back(load);
    changed_.notify_all();
  }
  void on_rejected(WorkerId /*worker*/, inference::RequestKey key, Error error) override {
    note(fmt::format("rejected {} {}", key.request.value(), error.info().name));
  }
  void on_accepted(WorkerId /*worker*/, inference::RequestKey key) override {
    note(fmt::format("accepted {}", key.request.value()));
  }
  void on_step(WorkerId /*worker*/, inference::StepOutput output) override {
    for (const inference::Delta& delta : output.deltas) {
      std::string line = fmt::format("delta {} @{}", delta.key.request.value(), delta.offset);
      for (const TokenId token : output.tokens_of(delta)) {
        line += fmt::format(" {}", token);
      }
      line += delta.finish == inference::FinishReason::kNone ? "" : " end";
      note(line);
      const MutexLock lock(mutex_);
      tokens_[delta.key.request.value()] += delta.token_count;
    }
    for (const inference::Failure& failure : output.failures) {
      note(fmt::format("failed {} {}", failure.key.request.value(), failure.error.info().name));
    }
  }
  void on_draining(WorkerId /*worker*/) override { note("draining"); }
  void on_closed(WorkerId /*worker*/, Error error) override {
    note(fmt::format("closed {}", error.info().name));
  }

  bool wait_for(const std::string& line) {
    MutexLock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60),
                             [&]() STATOR_REQUIRES(mutex_) { return has(line); });
  }
  bool wait_tokens(uint64_t request, uint64_t count) {
    MutexLock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60),
                             [&]() STATOR_REQUIRES(mutex_) { return tokens_[request] >= count; });
  }
  bool wait_load(uint32_t cached_blocks) {
    MutexLock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&]() STATOR_REQUIRES(mutex_) {
      return !loads_.empty() && loads_.back().kv_cached_blocks == cached_blocks;
    });
  }
  std::vector<std::string> lines() const {
    const MutexLock lock(mutex_);
    return lines_;
  }
  size_t count(const std::string& line) const {
    const MutexLock lock(mutex_);
    return static_cast<size_t>(std::ranges::count(lines_, line));
  }

 private:
  bool has(const std::string& line) const STATOR_REQUIRES(mutex_) {
    return std::ranges::find(lines_, line) != lines_.end();
  }
  void note(std::string line) {
    const MutexLock lock(mutex_);
    lines_.push_back(std::move(line));
    changed_.notify_all();
  }

  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<std::string> lines_;
  std::vector<engine::LoadReport> loads_;
  std::map<uint64_t, uint64_t> tokens_;
};

inline inference::RequestKey key(uint64_t request) {
  return {RequestId(request), Attempt(0)};
}

inline inference::EngineRequest make_request(uint64_t request) {
  inference::EngineRequest made;
  made.key = key(request);
  made.tokens = {10, 11, 12};
  return made;
}

}  // namespace stator::session::test
