// SPDX-License-Identifier: Apache-2.0
#include "stator/cli/version.h"

namespace stator::cli {

std::string_view version() {
  return STATOR_VERSION;
}

}  // namespace stator::cli
