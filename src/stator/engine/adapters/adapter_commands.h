// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "stator/core/clock.h"
#include "stator/engine/adapters/dialect.h"
#include "stator/engine/adapters/raise.h"
#include "stator/engine/api/engine.h"
#include "stator/engine/core/session_commands.h"

namespace stator::engine::adapters {

// What other threads leave for an adapter's own, and what it keeps of requests in its engine.

/// A request on its way to the engine.
struct Submit {
  SessionId session;
  inference::RequestKey key;
  uint32_t generated;
  inference::StopConditions stop;
  EngineCall call;
  std::unique_ptr<EventRaiser> raiser;
  inference::Phase phase;
  uint64_t handoff_id;
  TimePoint asked;
  std::string adapter;
  bool adapter_ready = false;  ///< it was loaded for this request
};
using Command = SessionCommand<Submit>;

/// A request in the engine.
struct Live {
  SessionId session;
  inference::RequestKey key;
  uint32_t offset;  // of the next token within the whole answer
  inference::StopConditions stop;
  ReplyReader reply;
  inference::Phase phase;
  uint64_t handoff_id;
  TimePoint asked;
  Duration unanswered{};                // from then on, at least so long
  bool spoke = false;                   // said a token
  std::optional<TimePoint> forsaken{};  // nobody listens any more: until then it may fetch
};

}  // namespace stator::engine::adapters
