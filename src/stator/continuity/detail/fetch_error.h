// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <grpcpp/support/status.h>

#include "stator/core/result.h"

namespace stator::continuity::detail {

/// Why a journal did not come: kUnavailable is worth another try, kNotFound is not.
inline Error to_fetch_error(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::NOT_FOUND:
      return Error(Code::kNotFound, status.error_message());
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return Error(Code::kNotFound, fmt::format("the journal is too long to be fetched: {}",
                                                status.error_message()));
    default:
      return Error(Code::kUnavailable, status.error_message());
  }
}

}  // namespace stator::continuity::detail
