// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "stator/engine/api/adapter.h"
#include "stator/engine/api/engine.h"
#include "stator/engine/core/adapter_loader.h"
#include "stator/engine/core/grammar_compiler.h"
#include "stator/guided/grammar.h"
#include "stator/inference/request.h"

namespace stator::engine {

/// A request with what it wanted before the engine's thread could have it.
struct PreparedRequest {
  SessionId session;
  inference::EngineRequest request;
  /// Null: free text. An error: the request fails with it.
  Result<std::shared_ptr<guided::Grammar>> grammar = std::shared_ptr<guided::Grammar>();
  std::shared_ptr<const Adapter> adapter = nullptr;  ///< just loaded: stays until it is used
};

/// Reads the adapters and compiles the grammars that requests want, each on a thread of its own.
/// Any thread. The number of requests that wait is the caller's to bound.
class RequestPreparation {
 public:
  /// Called on one of those threads, by stop() on the caller's. After stop() every request that
  /// still waits has an error for a grammar.
  using Done = std::function<void(PreparedRequest)>;

  /// Without a compiler no request has a grammar.
  RequestPreparation(std::shared_ptr<const AdapterSource> adapters,
                     std::unique_ptr<GrammarCompiler> grammars, Done done)
      : done_(std::move(done)), grammars_(std::move(grammars)), loader_(std::move(adapters)) {}
  RequestPreparation(const RequestPreparation&) = delete;
  RequestPreparation& operator=(const RequestPreparation&) = delete;

  /// Whether the request has to begin() here.
  bool wants(const inference::EngineRequest& request) const {
    return loader_.needs(request.lora_name) || wants_grammar(request);
  }
  void begin(PreparedRequest request);
  /// Idempotent.
  void stop();

 private:
  bool wants_grammar(const inference::EngineRequest& request) const {
    return grammars_ != nullptr && !request.structured_outputs.empty();
  }
  void load(PreparedRequest request);
  void compile(PreparedRequest request);

  const Done done_;
  const std::unique_ptr<GrammarCompiler> grammars_;  // null: none
  AdapterLoader loader_;                             // last: its thread orders grammars
};

}  // namespace stator::engine
