// SPDX-License-Identifier: Apache-2.0
#include "stator/api/api_error.h"

namespace stator::api {
namespace {

std::string prefixed(std::string_view text) {
  std::string message = "Validation: ";
  message += text;
  return message;
}

}  // namespace

ApiError validation_error(std::string param, std::string_view text) {
  return {Error(Code::kInvalidArgument, prefixed(text)), std::move(param)};
}

ApiError unsupported_error(std::string param, std::string_view text) {
  return {Error(Code::kUnsupported, prefixed(text)), std::move(param)};
}

}  // namespace stator::api
