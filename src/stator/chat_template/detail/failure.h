// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stator/core/error_code.h"

namespace stator::chat_template::detail {

/// What unwinds the parser and the interpreter, both deeply recursive, at the first error. Never
/// leaves the module: every public function catches it and answers with an Error.
struct Failure {
  Code code;
  std::string message;
  /// The template itself asked for this with raise_exception: the message is passed on untouched.
  bool raised = false;
};

[[noreturn]] void fail(std::string message, Code code = Code::kInvalidArgument);

}  // namespace stator::chat_template::detail
