// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "stator/app/worker_host.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"

namespace stator::app {

/// HTTP for the operators of a process with workers, on a thread of its own that answers however
/// busy the workers are:
///
///   GET /live, /health, /metrics
///   GET, POST /v1/loras, DELETE /v1/loras/{name}               LoRA adapters of its engines
///   POST /v1/load_lora_adapter, /v1/unload_lora_adapter        the same in vLLM's words
///   POST /engine/sleep, /engine/wake_up, /engine/reset_prefix_cache
///
/// What changes something is done at all workers of the process, or at ?worker_id=N, and answered
/// when they are done with it.
class SystemServer {
 public:
  virtual ~SystemServer() = default;
  virtual uint16_t port() const = 0;
  /// Nothing is answered any more. Before the workers go; the object itself outlives them, because
  /// they may still have something to tell it.
  virtual void close() = 0;
};

/// Null where settings.port is -1. `workers` stay alive until close(). kInvalidArgument for an
/// address that others reach without a token, kIo for a port that is taken.
Result<std::unique_ptr<SystemServer>> start_system_server(
    const SystemSettings& settings, std::span<const WorkerHost::Worker> workers, Clock& clock,
    Metrics& metrics);

}  // namespace stator::app
