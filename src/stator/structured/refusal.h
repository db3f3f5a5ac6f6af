// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <utility>

#include "stator/core/result.h"

namespace stator::structured {

/// Why something was refused, and where: the OpenAI error body has a `param`, so the field of the
/// request travels apart from the sentence about it.
///
///   guided_json                      at #/properties/age/not: `not` is not supported: …
///   ^ field                          ^ text
struct Refusal {
  Code code = Code::kInvalidArgument;  ///< or kUnsupported, kTooLarge
  std::string field;  ///< "response_format.json_schema.schema"; empty until the caller knows it
  std::string text;   ///< continues a sentence that begins with the field

  /// Names the field, or puts `name` in front of the one already there ("a", then "b.a").
  Refusal&& in_field(std::string_view name) &&;
  /// "<field> <text>" for whoever has no place for the field.
  Error to_error() &&;
};

/// A value, or why there is none. Works with STATOR_TRY and STATOR_CHECK.
template <typename T>
class [[nodiscard]] Outcome : public std::expected<T, Refusal> {
 public:
  using std::expected<T, Refusal>::expected;
  Outcome(Refusal refusal)  // NOLINT(google-explicit-constructor): as in core's Result
      : std::expected<T, Refusal>(std::unexpect, std::move(refusal)) {}
};

using Check = Outcome<void>;

/// kInvalidArgument without a field.
Refusal refuse(std::string text);
/// The same about one place: "at <where>: <why>".
Refusal refuse_at(std::string_view where, std::string_view why);

}  // namespace stator::structured
