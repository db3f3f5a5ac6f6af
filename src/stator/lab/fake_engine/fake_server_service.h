// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/lab/fake_engine/fake_config.h"
#include "stator/lab/fake_engine/faults.h"

namespace stator::fake_engine {

/// A server that looks like vLLM, SGLang, TensorRT-LLM or llama.cpp from outside and computes its
/// tokens from a hash.
///
///   STATOR_TRY(auto server, FakeServer::create(config, model, {}, clock, metrics));
///   server->port();
///   while (!told_to_stop && !server->restart_wanted()) { wait; }
///
/// Besides the engine's own routes it has /fault: POST adds a fault (see parse_fault), GET lists
/// them, DELETE forgets them; GET /fault/metrics is the process's own metrics.
///
/// One shard, one engine thread per rank, one thread per event publisher and side channel; all end
/// with the object. Errors at start name the option to change.
class FakeServer {
 public:
  static Result<std::unique_ptr<FakeServer>> create(FakeConfig config,
                                                    std::shared_ptr<const FakeModel> model,
                                                    std::vector<Fault> faults, Clock& clock,
                                                    Metrics& metrics);
  virtual ~FakeServer() = default;
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  virtual uint16_t port() const = 0;
  /// What a test wants to know, as members of a JSON object.
  virtual std::string announcement() const = 0;
  /// A fault wants the server gone; its owner makes a new one with the same port after this time.
  virtual std::optional<Duration> restart_wanted() const = 0;

 protected:
  FakeServer() = default;
};

}  // namespace stator::fake_engine
