// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "sse_counter.h"

namespace stator::bench {

/// Reads one HTTP/1.1 response at a time from bytes in pieces of any size: fixed length, chunked,
/// or until the connection closes. Bodies are counted, not kept, except the first 300 bytes of an
/// answer other than 200, for the report.
///
///   reset → feed … feed → kDone      (or kBroken: not HTTP, a head above 64 KiB, a bad chunk)
class ResponseParser {
 public:
  enum class State : uint8_t { kMore, kDone, kBroken };

  void reset();
  /// Bytes behind the end of the response are ignored: there is one request in flight.
  State feed(std::string_view bytes);
  /// The peer closed. kDone if that is how this response ends.
  State on_close() const;

  int status() const { return status_; }
  bool is_stream() const { return is_stream_; }
  bool must_close() const { return must_close_; }
  const SseCounts& sse() const { return sse_.counts(); }
  const std::string& error_body() const { return error_body_; }

 private:
  enum class Part : uint8_t {
    kHead,
    kSized,
    kUntilClose,
    kChunkSize,
    kChunkData,
    kChunkEnd,
    kTrailer,
    kDone,
    kBroken
  };

  void take_head(std::string_view& bytes);
  void parse_head(std::string_view head);
  void take_body(std::string_view bytes);
  void take_line(std::string_view& bytes);
  void end_of_line();
  void take_sized(std::string_view& bytes, Part next);

  Part part_ = Part::kHead;
  int status_ = 0;
  bool is_stream_ = false;
  bool must_close_ = false;
  uint64_t remaining_bytes_ = 0;  ///< of a sized body or of the current chunk
  std::string line_;              ///< the head, a chunk size or a trailer line so far
  SseCounter sse_;
  std::string error_body_;
};

}  // namespace stator::bench
