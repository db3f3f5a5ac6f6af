// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
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
#include "stator/net/job_thread.h"

namespace stator::engine {

/// Compiles grammars on a thread of its own, one after another, and keeps them for later requests.
/// Threads: compile() and stop() from any thread; what is delivered is used by the engine's thread.
class GrammarCompiler {
 public:
  using Done = std::function<void(Result<std::shared_ptr<guided::Grammar>>)>;

  GrammarCompiler(VocabularySource source, Clock& clock, Metrics& metrics,
                  std::string_view engine_name);

  /// Calls `done` on the compiler's thread, later or, for a grammar that is known, at once on the
  /// caller's. The number of calls that wait is the caller's to bound.
  void compile(std::string structured_outputs, Done done);
  /// Ends the thread; what waits is told kDraining. Idempotent.
  void stop() { jobs_.stop(); }

 private:
  Result<std::shared_ptr<guided::Grammar>> compile_now(const std::string& text);

  const VocabularySource source_;
  Clock& clock_;
  Histogram seconds_;
  Counter hits_;
  Counter refused_;

  Mutex mutex_;
  guided::GrammarCache cache_ STATOR_GUARDED_BY(mutex_);

  std::shared_ptr<const guided::Vocabulary> vocabulary_;  // the thread's
  net::JobThread jobs_{"grammars"};                       // last: it ends before what its jobs use
};

/// A guide that has been led through what earlier attempts of `request` generated; null for free
/// text. kInvalidArgument where these tokens do not follow the grammar.
Result<std::unique_ptr<guided::Guide>> make_guide(std::shared_ptr<guided::Grammar> grammar,
                                                  const inference::EngineRequest& request);

}  // namespace stator::engine
