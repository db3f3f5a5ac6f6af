// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "stator/core/result.h"
#include "stator/session/session_event.h"
#include "stator/session/session_metrics.h"
#include "stator/session/worker_session.h"

namespace stator::worker::v1 {
class ClientMessage;
class WorkerMessage;
}  // namespace stator::worker::v1

/// The client's half of the Session protocol, whatever carries it.
namespace stator::session {

/// The first message to a worker.
std::unique_ptr<worker::v1::ClientMessage> make_hello(WorkerId worker, Incarnation incarnation,
                                                      const std::string& client_name);

/// kTooLarge for a request that the protocol does not take.
Result<std::unique_ptr<worker::v1::ClientMessage>> make_submit(
    const inference::EngineRequest& request);

std::unique_ptr<worker::v1::ClientMessage> make_cancel(inference::RequestKey key,
                                                       CancelReason reason);

/// The worker that a session asked for.
struct WantedWorker {
  WorkerId worker;
  Incarnation incarnation;
};
/// What a worker's message says. An error: it cannot be trusted, and what it said is lost, so every
/// request of the session is in doubt; so is a worker that is not the one we asked for. Counts
/// messages, and those that are rejected. Any thread.
Result<SessionEvent> read_message(const worker::v1::WorkerMessage& message,
                                  const WantedWorker& wanted, const SessionMetrics& metrics);

}  // namespace stator::session
