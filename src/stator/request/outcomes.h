// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace stator::request {

/// What became of work at a worker.
enum class WorkOutcome : uint8_t {
  kServed,
  kFailed,  ///< by the worker's fault, its connection alive
  kHung,    ///< it went silent
};

/// How a migration ended, as a metric label.
enum class MigrationOutcome : uint8_t { kSuccess, kFailure, kCancelled };

}  // namespace stator::request
