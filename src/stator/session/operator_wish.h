// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace stator::session {

/// What an operator asks of a worker's engine, in the words of the HTTP routes
/// (docs/operations/engine_control.md).
struct OperatorWish {
  std::string method;  ///< "GET", "POST", "DELETE"
  std::string path;    ///< "/v1/loras", "/engine/sleep", …
  std::string body;    ///< JSON, or nothing
};

/// What became of it at one worker.
struct OperatorReply {
  uint32_t status = 200;                   ///< of HTTP
  std::string message = {};                ///< what is wrong; empty at 200
  std::vector<std::string> adapters = {};  ///< for GET /v1/loras
};

/// Called once, on any thread.
using OperatorDone = std::function<void(OperatorReply)>;
/// Whoever carries wishes out: at once, or minutes later.
using OperatorHandler = std::function<void(const OperatorWish&, OperatorDone)>;

}  // namespace stator::session
