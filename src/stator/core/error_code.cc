// SPDX-License-Identifier: Apache-2.0
#include "stator/core/error_code.h"

#include <array>

namespace stator {
namespace {

// Order follows `enum class Code`; the static_assert keeps the two in step.
constexpr std::array<CodeInfo, kCodeCount> kTable = {{
    {"invalid_argument", 400, 3, Retry::kNever, LogLevel::kInfo},
    {"not_found", 404, 5, Retry::kNever, LogLevel::kInfo},
    {"already_exists", 409, 6, Retry::kNever, LogLevel::kInfo},
    {"too_large", 413, 3, Retry::kNever, LogLevel::kInfo},
    {"unsupported_media", 415, 3, Retry::kNever, LogLevel::kInfo},
    {"unsupported", 501, 12, Retry::kNever, LogLevel::kInfo},
    {"unauthenticated", 401, 16, Retry::kNever, LogLevel::kInfo},
    {"permission_denied", 403, 7, Retry::kNever, LogLevel::kInfo},
    {"rate_limited", 429, 8, Retry::kLater, LogLevel::kInfo},
    {"overloaded", 503, 8, Retry::kElsewhere, LogLevel::kWarn},
    {"unavailable", 503, 14, Retry::kLater, LogLevel::kWarn},
    {"draining", 503, 14, Retry::kElsewhere, LogLevel::kInfo},
    {"disconnected", 503, 14, Retry::kElsewhere, LogLevel::kWarn},
    {"deadline", 504, 4, Retry::kNever, LogLevel::kInfo},
    {"cancelled", 499, 1, Retry::kNever, LogLevel::kDebug},
    {"corrupt", 500, 15, Retry::kNever, LogLevel::kError},
    {"io", 500, 13, Retry::kNever, LogLevel::kError},
    {"internal", 500, 13, Retry::kNever, LogLevel::kError},
}};
static_assert(!kTable.back().name.empty(), "every Code has a row");

}  // namespace

const CodeInfo& describe(Code code) {
  return kTable[static_cast<size_t>(code)];
}

Code code_from_grpc(int grpc_status) {
  switch (grpc_status) {
    case 1:
      return Code::kCancelled;
    case 3:
      return Code::kInvalidArgument;
    case 4:
      return Code::kDeadline;
    case 5:
      return Code::kNotFound;
    case 6:
      return Code::kAlreadyExists;
    case 7:
      return Code::kPermissionDenied;
    case 8:
      return Code::kOverloaded;
    case 12:
      return Code::kUnsupported;
    case 14:
      return Code::kUnavailable;
    case 15:
      return Code::kCorrupt;
    case 16:
      return Code::kUnauthenticated;
    default:
      return Code::kInternal;
  }
}

Code code_from_name(std::string_view name) {
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (kTable[i].name == name) {
      return static_cast<Code>(i);
    }
  }
  return Code::kInternal;
}

}  // namespace stator
