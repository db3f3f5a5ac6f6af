// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/refusal.h"

#include <fmt/format.h>

namespace stator::structured {

Refusal&& Refusal::in_field(std::string_view name) && {
  if (field.empty()) {
    field = name;
  } else {
    field = fmt::format("{}{}{}", name, field.starts_with('[') ? "" : ".", field);
  }
  return std::move(*this);
}

Error Refusal::to_error() && {
  return {code, field.empty() ? std::move(text) : fmt::format("{} {}", field, text)};
}

Refusal refuse(std::string text) {
  return {.code = Code::kInvalidArgument, .field = {}, .text = std::move(text)};
}

Refusal refuse_at(std::string_view where, std::string_view why) {
  return refuse(fmt::format("at {}: {}", where, why));
}

}  // namespace stator::structured
