// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/structured_output.h"

namespace stator::structured {

std::string_view describe(Kind kind) {
  switch (kind) {
    case Kind::kJsonSchema:
      return "a JSON schema";
    case Kind::kRegex:
      return "a regular expression";
    case Kind::kChoice:
      return "a choice";
    case Kind::kGrammar:
      return "a grammar";
    case Kind::kJsonObject:
      return "a JSON object";
    case Kind::kStructuralTag:
      return "a structural tag";
  }
  return "a constraint";
}

}  // namespace stator::structured
