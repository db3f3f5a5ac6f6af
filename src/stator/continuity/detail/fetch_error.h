// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include "stator/core/result.h"
#include "stator/net/grpc_call.h"
#include "stator/net/grpc_status.h"

namespace stator::continuity::detail {

/// Why a journal did not come: kUnavailable is worth another try, kNotFound is not.
inline Error to_fetch_error(const net::GrpcOutcome& outcome) {
  switch (outcome.status) {
    case net::kGrpcNotFound:
      return Error(Code::kNotFound, outcome.message);
    case net::kGrpcResourceExhausted:
      return Error(Code::kNotFound,
                   fmt::format("the journal is too long to be fetched: {}", outcome.message));
    default:
      return Error(Code::kUnavailable, outcome.message);
  }
}

}  // namespace stator::continuity::detail
