// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace stator {

/// What went wrong, in the only vocabulary all modules share. Detail goes into the message of an
/// `Error`. How each code maps to HTTP, gRPC, retry and log level is one table: `describe(Code)`.
enum class Code : uint8_t {
  kInvalidArgument,   ///< the request or a value in it is wrong; the message names it
  kNotFound,          ///< unknown model, route, file
  kAlreadyExists,     ///< a second thing under a name or id that must be unique
  kTooLarge,          ///< body, prompt or value beyond a limit; the message names the limit
  kUnsupportedMedia,  ///< content type we do not read
  kUnsupported,       ///< known, but this build, engine or model cannot do it
  kUnauthenticated,   ///< no or unknown credentials
  kPermissionDenied,  ///< known caller, not allowed
  kRateLimited,       ///< caller's own limit reached; try later
  kOverloaded,        ///< one worker or queue is full; another may take it
  kUnavailable,       ///< nobody can serve this now; try later
  kDraining,          ///< the peer is going away; another may take it
  kDisconnected,      ///< the peer vanished with the request in flight
  kDeadline,          ///< past its deadline
  kCancelled,         ///< the caller went away or withdrew; never logged as a failure
  kCorrupt,           ///< bytes from disk or a peer do not parse or verify
  kIo,                ///< the operating system said no; the message has its text
  kInternal,          ///< our bug, survivable
};

inline constexpr int kCodeCount = static_cast<int>(Code::kInternal) + 1;

/// Whether the same request may succeed on another worker or later.
enum class Retry : uint8_t { kNever, kElsewhere, kLater };

enum class LogLevel : uint8_t { kTrace, kDebug, kInfo, kWarn, kError };

/// One row of the error table.
struct CodeInfo {
  std::string_view name;  ///< stable lower-case word for logs, metrics, wire
  int http_status;
  int grpc_status;  ///< numeric value of grpc::StatusCode
  Retry retry;
  LogLevel log_level;
};

/// The table's row for `code`. Never fails.
const CodeInfo& describe(Code code);

/// The code whose row has this gRPC status, the most general one where several share it.
Code code_from_grpc(int grpc_status);

/// The code with this name, or kInternal for a name from a newer peer.
Code code_from_name(std::string_view name);

}  // namespace stator
