// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/body.h"

#include "stator/core/assert.h"

namespace stator::parsers {

std::unique_ptr<const BodyMachine> make_body_machine(const BodyContext& context) {
  switch (context.spec.body) {
    case BodyKind::kJsonCalls:
      return make_json_calls_machine(context);
    case BodyKind::kNamedJson:
      return make_named_json_machine(context);
    case BodyKind::kTagParams:
      return make_tag_params_machine(context);
    case BodyKind::kWholeJson:
      return make_whole_json_machine(context);
    case BodyKind::kPythonic:
      return make_pythonic_machine(context);
    case BodyKind::kHarmony:
      return make_harmony_machine(context);
    case BodyKind::kInvoke:
      return make_invoke_machine(context);
    case BodyKind::kGemma4:
      return make_gemma4_machine(context);
    case BodyKind::kMinimaxM3:
      return make_minimax_m3_machine(context);
    default:
      break;
  }
  STATOR_ASSERT(false, "every body kind has a machine");
}

}  // namespace stator::parsers
