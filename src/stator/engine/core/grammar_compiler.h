// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/engine/core/engine_service.h"
#include "stator/guided/grammar.h"
#include "stator/inference/request.h"
#include "stator/net/thread.h"

namespace stator::engine {

/// Compiles grammars on a thread of its own, one after another, and keeps them for later requests.
/// Threads: compile() and stop() from any thread; what is delivered is used by the engine's thread.
class GrammarCompiler {
 public:
  using Done = std::function<void(Result<std::shared_ptr<guided::Grammar>>)>;

  GrammarCompiler(VocabularySource source, Clock& clock, Metrics& metrics,
                  std::string_view engine_name);
  ~GrammarCompiler() { stop(); }

  /// Calls `done` on the compiler's thread, later or, for a grammar that is known, at once on the
  /// caller's. The number of calls that wait is the caller's to bound.
  void compile(std::string structured_outputs, Done done);
  /// Ends the thread; what waits is told kDraining. Idempotent.
  void stop();

 private:
  struct Job {
    std::string text;
    Done done;
  };
  void work();
  Result<std::shared_ptr<guided::Grammar>> compile_now(const std::string& text);

  const VocabularySource source_;
  Clock& clock_;
  Histogram seconds_;
  Counter hits_;
  Counter refused_;

  Mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<Job> jobs_ STATOR_GUARDED_BY(mutex_);
  guided::GrammarCache cache_ STATOR_GUARDED_BY(mutex_);
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  net::Thread thread_ STATOR_GUARDED_BY(mutex_);
  bool started_ STATOR_GUARDED_BY(mutex_) = false;

  std::shared_ptr<const guided::Vocabulary> vocabulary_;  // the thread's
};

/// A guide that has been led through what earlier attempts of `request` generated; null for free
/// text. kInvalidArgument where these tokens do not follow the grammar.
Result<std::unique_ptr<guided::Guide>> make_guide(std::shared_ptr<guided::Grammar> grammar,
                                                  const inference::EngineRequest& request);

}  // namespace stator::engine
