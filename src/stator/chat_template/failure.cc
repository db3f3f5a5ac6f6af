// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/failure.h"

#include <utility>

namespace stator::chat_template::detail {

void fail(std::string message, Code code) {
  throw Failure{code, std::move(message), false};
}

}  // namespace stator::chat_template::detail
