// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "stator/core/result.h"

namespace stator::io {

/// Starts `command` (its first word is found on PATH) and returns its process id; the caller waits
/// for it. The child reads /dev/null, writes to `output` (-1: /dev/null), and is in a process group
/// of its own, so that Ctrl-C reaches this process alone. Signals that our threads block or ignore
/// are as usual in it. Errors: kNotFound for no such program, kIo.
Result<pid_t> start_child(const std::vector<std::string>& command, int output = -1);

/// The same, with what differs.
struct ChildSetup {
  int output = -1;                            ///< -1: /dev/null
  int error = -1;                             ///< -1: where the output goes
  std::vector<std::string> environment = {};  ///< NAME=value, beside what this process has
};
Result<pid_t> start_child(const std::vector<std::string>& command, const ChildSetup& setup);

}  // namespace stator::io
