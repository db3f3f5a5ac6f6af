// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stator/lab/loadgen/sse_scanner.h"

namespace stator::loadgen {

/// Reads one HTTP/1.1 answer at a time from pieces of any size: of known length, chunked, or until
/// the connection closes. Event streams are scanned as they come, other bodies are kept up to 4 MiB
/// and looked at when complete. No allocation per event or chunk once its buffers have grown.
///
///   reset → feed … feed → kDone | kBroken
class ResponseReader {
 public:
  static constexpr size_t kBodyBytesMax = 4 << 20;
  static constexpr size_t kHeadBytesMax = 64 << 10;

  enum class State : uint8_t { kMore, kDone, kBroken };

  void reset();
  /// Collects the answer's text for the next turn, see SseScanner::capture. Call after reset().
  void capture(std::string* text, size_t bytes_max);
  /// Bytes behind the end of the answer break it: there is one request in flight.
  State feed(std::string_view bytes);
  /// The peer closed: kDone if that ends this answer, else kBroken.
  State on_close();

  /// No byte of an answer has come yet.
  bool untouched() const { return part_ == Part::kHead && head_.empty(); }
  /// 0 until the head is read.
  int status() const { return status_; }
  bool is_stream() const { return is_stream_; }
  /// The server closes the connection after this answer.
  bool must_close() const { return must_close_; }
  const AnswerCounts& counts() const { return is_stream_ ? sse_.counts() : body_counts_; }
  /// What the server said about a failure, at most 300 bytes, or what its answer lacks.
  std::string error_text() const;
  /// Why feed() or on_close() gave kBroken.
  std::string_view broken_text() const { return broken_text_; }

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
    kBroken,
  };

  void take_head(std::string_view& bytes);
  void read_head(std::string_view head);
  void read_header(std::string_view name, std::string_view value);
  void take_body(std::string_view bytes);
  void take_sized(std::string_view& bytes, Part next);
  void take_chunk_size(std::string_view& bytes);
  void take_line_end(std::string_view& bytes);
  void end_chunk_size();
  void finish_body();
  void break_off(std::string_view why);

  Part part_ = Part::kHead;
  int status_ = 0;
  bool is_stream_ = false;
  bool must_close_ = false;
  bool chunked_ = false;
  bool has_length_ = false;
  uint64_t left_bytes_ = 0;  // of a sized body or of the current chunk
  std::string head_;         // the head so far
  std::string line_;         // a chunk size or trailer line so far
  std::string body_;
  std::string location_;          // of a redirect
  std::string_view broken_text_;  // a literal
  SseScanner sse_;
  AnswerCounts body_counts_;
  std::string* text_ = nullptr;
  size_t text_bytes_max_ = 0;
};

}  // namespace stator::loadgen
