// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stator::net::detail {

/// Decodes one chunked body from any split of its bytes, without buffering framing. Ours rather
/// than Beast's because Beast 1.81 asserts, that is aborts, on some splits of a final chunk.
/// Strict: lines end with CRLF; white space after a size belongs to an extension; trailers are not
/// folded. Extensions and trailers are skipped, 4 KiB of them per chunk or body.
class ChunkDecoder {
 public:
  enum class State : uint8_t {
    kSize,
    kSpaceAfterSize,
    kExtension,
    kSizeLineFeed,
    kData,
    kDataReturn,
    kDataLineFeed,
    kTrailerStart,
    kTrailer,
    kTrailerLineFeed,
    kLastLineFeed,
    kDone,
    kMalformed,
    kTooLarge,
  };

  explicit ChunkDecoder(size_t body_bytes_max) : body_bytes_max_(body_bytes_max) {}

  /// Appends data to `body` and returns how much of `bytes` was used: all of it unless ended().
  size_t feed(std::string_view bytes, std::string& body);

  State state() const { return state_; }
  /// kDone, kMalformed or kTooLarge.
  bool ended() const { return state_ >= State::kDone; }

 private:
  void step(char c, size_t body_bytes);
  void step_size(char c, size_t body_bytes);
  void step_space(char c);
  void expect(char c, char wanted, State next) { state_ = c == wanted ? next : State::kMalformed; }
  void skip(char c, State at_return);

  const size_t body_bytes_max_;
  size_t chunk_left_ = 0;
  size_t skipped_ = 0;  // bytes of extensions or trailers on the way
  int digits_ = 0;
  State state_ = State::kSize;
};

}  // namespace stator::net::detail
