// SPDX-License-Identifier: Apache-2.0
#include "stator/app/version.h"

namespace stator::app {

std::string_view version() {
  return STATOR_VERSION;
}

}  // namespace stator::app
