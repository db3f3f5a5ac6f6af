// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/engine/adapters/control.h"
#include "stator/engine/adapters/dialect.h"
#include "stator/engine/api/engine.h"

namespace stator::engine::adapters {

/// One engine server and how to reach it.
struct AdapterConfig {
  std::string kind;              ///< make_dialect()
  std::string url;               ///< "http://host:port", no path
  std::string api_key;           ///< sent as a bearer token; empty = none
  std::string upstream_model;    ///< the name the engine knows the model by; empty = its first
  std::string name = "engine";   ///< value of the `engine` label on metrics
  uint32_t block_size = 16;      ///< tokens, where the engine does not tell
  uint32_t max_model_len = 0;    ///< the same; 0 = the engine's, or no limit here
  uint32_t vocab_size = 0;       ///< token ids below it are sent
  uint32_t inflight_max = 4096;  ///< requests in the engine at once; beyond: kOverloaded
  Duration connect_timeout = std::chrono::seconds(5);
  /// An engine that sends nothing for so long, queueing included, has lost the request.
  Duration stall_timeout = std::chrono::seconds(120);
  Duration poll_interval = std::chrono::seconds(1);  ///< of metrics and health
  /// A server that sends nothing at all for so long, though its health was asked for, stands still:
  /// its requests fail, so that they go on elsewhere. Zero: never.
  Duration silence_timeout = std::chrono::seconds(8);
  inference::MediaKinds media;                        ///< what its model takes beside text
  bool vllm_generate = false;                         ///< DialectOptions::vllm_generate
  std::string task = "auto";                          ///< pool_ability()
  Duration handoff_lease = std::chrono::seconds(30);  ///< how long a prefill server keeps blocks
  std::string lora_folder;  ///< of adapters that are loaded when first asked for; empty = none
  uint32_t loras_max = 16;  ///< of these, loaded at once
};

/// An engine server seen as an Engine: requests are lowered to HTTP calls and sent, the answers
/// raised to steps, everything a server sent within one turn of the loop in one step.
///
/// A1  An accepted request ends once: by the engine's own end, by a failure, or by cancel().
/// A2  cancel() and close_session() close the connection, which is how every engine aborts.
/// A3  Nothing reaches the engine that check_request() or lower() refuses.
/// A4  While the engine does not answer its health check, submit() says kUnavailable at once. One
///     that stands still (silence_timeout) fails what it has, too.
/// A5  At most `inflight_max` requests run; as many more, cancelled before their first token, may
///     still fetch their prompt.
/// A6  A hand-off reaches the engine within seconds of submit(), or never.
/// A7  From the moment control() is asked to put the engine to sleep until it is awake again,
///     submit() says kUnavailable.
/// A8  A request for an adapter of lora_folder that the server has not waits until it was loaded,
///     and holds up nobody else.
///
/// Thread-safe as Engine says; one thread of its own runs all connections.
class AdapterEngine : public Engine {
 public:
  /// Whether the engine answers now.
  virtual bool healthy() const = 0;
  virtual const EngineFacts& facts() const = 0;
  virtual const Traits& traits() const = 0;

  /// Gives work up to an operator's wish: whether it sleeps now, by our doing or another's.
  virtual bool asleep() const = 0;
  /// The LoRA adapters it has loaded or would load, sorted. As of the last look: one that somebody
  /// loads at the server itself is seen ten polls later.
  virtual std::vector<std::string> adapters() const = 0;

  /// A prompt that was computed here for another server may still be fetched: its lease is not
  /// over, and the server has not said since that it holds no blocks. Then this server and its
  /// worker must stay.
  virtual bool owes_prompts() const = 0;

  using ControlDone = std::move_only_function<void(Status)>;
  /// Does what an operator wants; `done` is told once how it went, on the adapter's thread, or on
  /// the caller's where it is refused. kOverloaded beyond 16 at once, kDeadline after two minutes.
  /// Once blocks were forgotten or lost, an AllCleared event of every rank follows, because some
  /// engines tell of it with their next request only.
  virtual void control(Control control, ControlDone done) = 0;
};

/// Asks a running server what it is. Blocks for at most the connect timeout per question. Errors:
/// kUnavailable while it does not answer or is still loading; kCorrupt, kNotFound when it is not
/// the kind of server, or does not serve the model, that `config` names.
Result<EngineFacts> ask_engine(const AdapterConfig& config, const Dialect& dialect);

/// `facts` are those of ask_engine(). `clock` and `metrics` outlive the engine. kInvalidArgument
/// for a contradiction in `config`.
Result<std::unique_ptr<AdapterEngine>> make_adapter(AdapterConfig config, EngineFacts facts,
                                                    std::unique_ptr<Dialect> dialect, Clock& clock,
                                                    Metrics& metrics);

/// The host of an http or https URL, for event endpoints; kInvalidArgument, naming engine.url, for
/// anything else.
Result<std::string> host_of(const std::string& url);

}  // namespace stator::engine::adapters
