// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/body.h"

#include "stator/core/assert.h"

namespace stator::parsers {

std::unique_ptr<const BodyMachine> make_body_machine(const BodyContext& context) {
  switch (context.spec.body) {
    case BodyKind::kJsonCalls:
      return make_json_calls_machine(context);
    case BodyKind::kPythonic:
      return make_pythonic_machine(context);
    case BodyKind::kHarmony:
      return make_harmony_machine(context);
    default:
      break;
  }
  STATOR_ASSERT(false, "every body kind has a machine");
}

}  // namespace stator::parsers
