// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "stator/core/result.h"
#include "stator/session/session_core.h"

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

struct Told {
  bool opened = false;  ///< it was the Welcome
};
/// Passes a worker's message on. An error: it cannot be trusted, and what it said is lost, so every
/// request of the session is in doubt; so is a worker that is not the one of `incarnation` we asked
/// for. Counts what is rejected. Any thread.
Result<Told> tell(const worker::v1::WorkerMessage& message, Incarnation incarnation,
                  SessionCore& core);

}  // namespace stator::session
