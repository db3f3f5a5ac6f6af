// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/meter.h"

#include <algorithm>
#include <string>

#include "stator/chat_template/detail/failure.h"

namespace stator::chat_template {

void Meter::plan_look() {
  next_look_ = std::min(steps_ + kLookEvery, steps_max_ + 1);
}

void Meter::look() {
  if (steps_ > steps_max_) {
    detail::fail("the template runs longer than " + std::to_string(steps_max_) + " steps");
  }
  if (const Status wanted = CancelToken::check(cancel_); !wanted) {
    throw detail::Failure{Code::kCancelled, std::string(wanted.error().message()), true};
  }
  plan_look();
}

}  // namespace stator::chat_template
