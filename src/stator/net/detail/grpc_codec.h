// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/net/detail/http2_session.h"
#include "stator/net/detail/output_buffer.h"
#include "stator/net/grpc_call.h"
#include "stator/net/grpc_status.h"

/// What both halves of gRPC's "HTTP2 protocol" document share: length-prefixed messages, statuses
/// in header fields. No compression.
namespace stator::net::detail {

inline constexpr std::string_view kGrpcContentType = "application/grpc";
/// A status' text is cut to this.
inline constexpr size_t kGrpcTextBytesMax = 4096;
/// A drained buffer of messages keeps this much.
inline constexpr size_t kGrpcCapacityKept = size_t{64} * 1024;

void append_grpc_message(OutputBuffer& out, std::string_view message);

/// grpc-message is percent-encoded; what is not stays as it is.
std::string percent_encoded(std::string_view text);

/// −1 for what is no decimal number.
int parse_grpc_number(std::string_view text);

/// grpc-timeout: "250m" is 250 ms. Nothing for what is none.
std::optional<Duration> parse_grpc_timeout(std::string_view text);
/// The other way round, rounded up; negative times are none.
std::string format_grpc_timeout(Duration timeout);

/// Puts messages together from bytes that come in pieces. Holds at most one, and that only while
/// its end has not come.
class GrpcMessageReader {
 public:
  explicit GrpcMessageReader(size_t message_bytes_max) : message_bytes_max_(message_bytes_max) {}

  /// The next message, taken off the front of `bytes`; nothing when all of them are taken or there
  /// is trouble(). Valid until the next call, and only as long as the bytes are.
  std::optional<std::string_view> next(std::string_view& bytes);
  /// Set for good by a message that is compressed or longer than the bound.
  const std::optional<GrpcOutcome>& trouble() const { return trouble_; }
  /// Of a message whose end has not come.
  size_t unfinished_bytes() const { return handed_out_ ? 0 : incoming_.size(); }
  /// Forgets the beginning of a message: nothing follows.
  void drop() { std::string().swap(incoming_); }

 private:
  bool check(const char* prefix);
  void collect(std::string_view& bytes, size_t wanted);

  const size_t message_bytes_max_;
  std::string incoming_;     // prefix and beginning of a message
  bool handed_out_ = false;  // incoming_ is a message that next() has returned
  std::optional<GrpcOutcome> trouble_;
};

}  // namespace stator::net::detail
