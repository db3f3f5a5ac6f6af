// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stator::net::detail {

/// Bytes on their way to one client. Raw bytes and chunk data share one string; an open chunk gets
/// its size line when it is sealed, so that everything appended between two flushes is one chunk.
///
/// O1  Bytes returned by front() never change until they are consumed.
class OutputBuffer {
 public:
  /// A drained buffer keeps `capacity_kept` bytes of memory. By default a token's event: an idle
  /// stream costs no more, and the head of its answer is not kept.
  explicit OutputBuffer(size_t capacity_kept = 512) : capacity_kept_(capacity_kept) {}

  /// Bytes that are already framed: heads, whole bodies. Seals an open chunk first.
  void append_raw(std::string_view bytes);
  /// The same for a whole body, kept as it is rather than copied. What follows it is raw.
  void append_body(std::string body);
  /// Data of a chunked body; opens a chunk when none is open.
  void append_chunk_data(std::string_view bytes);
  /// Frames the open chunk, if any.
  void seal();
  /// Seals, then adds the empty chunk that ends a chunked body.
  void append_last_chunk();

  /// What to send next; seal first. All of it is framed.
  std::string_view front() const { return std::string_view(bytes_).substr(sent_); }
  /// The first `count` bytes of front() are gone. Gives memory back when everything is.
  void consume(size_t count);

  size_t size() const { return bytes_.size() - sent_ + body_.size(); }
  bool empty() const { return size() == 0; }
  size_t memory_bytes() const { return bytes_.capacity() + body_.size(); }
  /// What it keeps in memory: what is to be sent, and what was and could not be given back yet.
  size_t held_bytes() const { return bytes_.size() + body_.size(); }
  void clear();

 private:
  static constexpr size_t kNoChunk = static_cast<size_t>(-1);
  void compact();
  // A partly sent buffer is moved to the front of its memory, when more comes, once this much is
  // gone.
  static constexpr size_t kCompactFrom = 64 * 1024;

  size_t capacity_kept_;
  std::string bytes_;
  std::string body_;  // after bytes_
  size_t sent_ = 0;
  size_t chunk_start_ = kNoChunk;
};

}  // namespace stator::net::detail
