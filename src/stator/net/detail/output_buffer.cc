// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/output_buffer.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>
#include <utility>

#include "stator/core/assert.h"

namespace stator::net::detail {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
// A smaller body is copied behind its head, to leave with it.
constexpr size_t kMovedFrom = 64 * 1024;
// Of a chunk: its size in hexadecimal and two line ends.
constexpr size_t kFrameBytesMax = 2 * sizeof(size_t) + 2 * kLineEnd.size();

}  // namespace

void OutputBuffer::append_raw(std::string_view bytes) {
  seal();
  compact();
  (body_.empty() ? bytes_ : body_) += bytes;
}

void OutputBuffer::append_body(std::string body) {
  if (body.size() < kMovedFrom || !body_.empty()) {
    return append_raw(body);
  }
  seal();
  if (sent_ == bytes_.size()) {
    bytes_ = std::move(body);
    sent_ = 0;
  } else {
    body_ = std::move(body);
  }
}

void OutputBuffer::append_chunk_data(std::string_view bytes) {
  if (bytes.empty()) {
    return;  // an empty chunk would end the body
  }
  STATOR_ASSERT(body_.empty(), "a whole body is the last of its answer");
  compact();
  if (chunk_start_ == kNoChunk) {
    chunk_start_ = bytes_.size();
    // With room for the frame, or a stream of single tokens would keep twice its event for ever.
    if (bytes_.empty()) {
      bytes_.reserve(bytes.size() + kFrameBytesMax);
    }
  }
  bytes_ += bytes;
}

void OutputBuffer::seal() {
  if (chunk_start_ == kNoChunk) {
    return;
  }
  // Inserting the size afterwards moves the chunk's bytes once: cheaper than a second buffer, and
  // the size needs no padding.
  char line[kFrameBytesMax - kLineEnd.size()];
  const size_t data_bytes = bytes_.size() - chunk_start_;
  char* end = std::to_chars(std::begin(line), std::end(line), data_bytes, 16).ptr;
  end = std::ranges::copy(kLineEnd, end).out;
  bytes_.insert(chunk_start_, line, static_cast<size_t>(end - line));
  bytes_ += kLineEnd;
  chunk_start_ = kNoChunk;
}

void OutputBuffer::append_last_chunk() {
  append_raw("0\r\n\r\n");
}

void OutputBuffer::consume(size_t count) {
  STATOR_ASSERT(chunk_start_ == kNoChunk && count <= bytes_.size() - sent_,
                "O1: only sealed bytes are sent");
  sent_ += count;
  if (empty()) {
    clear();
  } else if (sent_ == bytes_.size()) {
    bytes_ = std::exchange(body_, {});
    sent_ = 0;
  }
}

// Only where more is appended: a whole answer is never moved.
void OutputBuffer::compact() {
  if (sent_ < kCompactFrom || sent_ * 2 < bytes_.size()) {
    return;
  }
  bytes_.erase(0, sent_);
  if (chunk_start_ != kNoChunk) {
    chunk_start_ -= sent_;
  }
  sent_ = 0;
}

void OutputBuffer::clear() {
  sent_ = 0;
  chunk_start_ = kNoChunk;
  body_ = std::string();
  if (bytes_.capacity() > capacity_kept_) {
    std::string().swap(bytes_);  // an assigned empty string would leave the memory where it is
  } else {
    bytes_.clear();
  }
}

}  // namespace stator::net::detail
