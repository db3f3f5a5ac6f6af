// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <variant>

#include "stator/engine/api/engine.h"

namespace stator::engine {

// What other threads leave in the inbox of an engine's own, beside the requests themselves.

struct Cancel {
  SessionId session;
  inference::RequestKey key;
};
struct Close {
  SessionId session;
};
/// `Submit` is what an engine keeps of a request that it was given.
template <typename Submit>
using SessionCommand = std::variant<Submit, Cancel, Close>;

}  // namespace stator::engine
