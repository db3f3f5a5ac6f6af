// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <variant>

#include "stator/core/result.h"
#include "stator/engine/api/engine.h"

namespace stator::session {

struct SessionOpened {};
struct SessionAccepted {
  inference::RequestKey key;
};
struct SessionRejected {
  inference::Failure failure;
};
struct SessionDraining {};
struct SessionClosed {
  Error error;
};
/// What a worker said, or became of it. std::monostate: nothing that we need to know.
using SessionEvent =
    std::variant<std::monostate, SessionOpened, SessionAccepted, SessionRejected,
                 inference::StepOutput, engine::LoadReport, SessionDraining, SessionClosed>;

}  // namespace stator::session
