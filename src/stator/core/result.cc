// SPDX-License-Identifier: Apache-2.0
#include "stator/core/result.h"

namespace stator {

static_assert(sizeof(Error) == sizeof(void*));

Error::Error(Code code, std::string message, std::source_location where)
    : state_(std::make_unique<State>(State{code, std::move(message), where})) {}

std::string Error::to_string() const {
  return std::string(describe(state_->code).name) + ": " + state_->message;
}

Error&& Error::with_context(std::string_view context) && {
  state_->message.insert(0, ": ");
  state_->message.insert(0, context);
  return std::move(*this);
}

Error&& Error::with_code(Code code) && {
  state_->code = code;
  return std::move(*this);
}

Error Error::clone() const {
  return Error(*state_);
}

}  // namespace stator
