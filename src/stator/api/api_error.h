// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <utility>

#include "stator/core/result.h"

namespace stator::api {

/// An `Error` that also knows which field of the request it is about, because the OpenAI error body
/// has a `param`. Converts from a plain Error (no field), so that a request pipeline can speak
/// ApiResult from parsing to dispatch and use STATOR_TRY for everything it calls.
struct ApiError {
  Error error;
  std::string
      param;  ///< "temperature", "messages[2].content[0].type"; empty: the request as a whole

  ApiError(Error cause)
      : error(std::move(cause)) {}  // NOLINT(google-explicit-constructor): see above
  ApiError(Error cause, std::string field) : error(std::move(cause)), param(std::move(field)) {}

  Code code() const { return error.code(); }
  const std::string& message() const { return error.message(); }
};

template <typename T>
class [[nodiscard]] ApiResult : public std::expected<T, ApiError> {
 public:
  using std::expected<T, ApiError>::expected;
  ApiResult(ApiError error)  // NOLINT(google-explicit-constructor): as in Result
      : std::expected<T, ApiError>(std::unexpect, std::move(error)) {}
  ApiResult(Error error)  // NOLINT(google-explicit-constructor): as in Result
      : std::expected<T, ApiError>(std::unexpect, std::move(error)) {}
};

using ApiStatus = ApiResult<void>;

/// A failed rule: message "Validation: " + text (metrics classify by that prefix), 400.
ApiError validation_error(std::string param, std::string_view text);
/// Known but not available here: same prefix, 501.
ApiError unsupported_error(std::string param, std::string_view text);

}  // namespace stator::api
