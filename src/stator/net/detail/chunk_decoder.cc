// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/chunk_decoder.h"

#include <algorithm>

#include "stator/text/hex.h"

namespace stator::net::detail {
namespace {

constexpr size_t kSkippedMax = 4096;
// Leading zeros are allowed, a number that could overflow is not.
constexpr int kDigitsMax = 15;

}  // namespace

size_t ChunkDecoder::feed(std::string_view bytes, std::string& body) {
  size_t used = 0;
  while (used < bytes.size() && !ended()) {
    if (state_ == State::kData) {
      const std::string_view data = bytes.substr(used, chunk_left_);
      body += data;
      used += data.size();
      chunk_left_ -= data.size();
      if (chunk_left_ == 0) {
        state_ = State::kDataReturn;
      }
    } else {
      step(bytes[used], body.size());
      ++used;
    }
  }
  return used;
}

void ChunkDecoder::step(char c, size_t body_bytes) {
  switch (state_) {
    case State::kSize:
      return step_size(c, body_bytes);
    case State::kSpaceAfterSize:
      return step_space(c);
    case State::kExtension:
      return skip(c, State::kSizeLineFeed);
    case State::kSizeLineFeed:
      return expect(c, '\n', chunk_left_ > 0 ? State::kData : State::kTrailerStart);
    case State::kDataReturn:
      return expect(c, '\r', State::kDataLineFeed);
    case State::kDataLineFeed:
      digits_ = 0;
      skipped_ = 0;
      return expect(c, '\n', State::kSize);
    case State::kTrailerStart:
      if (c == '\r') {
        state_ = State::kLastLineFeed;
        return;
      }
      if (c == ' ' || c == '\t') {  // the line before goes on here
        state_ = State::kMalformed;
        return;
      }
      [[fallthrough]];
    case State::kTrailer:
      return skip(c, State::kTrailerLineFeed);
    case State::kTrailerLineFeed:
      return expect(c, '\n', State::kTrailerStart);
    case State::kLastLineFeed:
      return expect(c, '\n', State::kDone);
    default:
      return;  // kData is handled in bulk, the others have ended
  }
}

void ChunkDecoder::step_size(char c, size_t body_bytes) {
  const uint32_t value = text::hex_value(c);
  if (value != text::kNoHexDigit) {
    chunk_left_ = (digits_ == 0 ? 0 : chunk_left_ * 16) + value;
    if (++digits_ > kDigitsMax) {
      state_ = State::kMalformed;
    }
    return;
  }
  if (digits_ == 0 || (c != '\r' && c != ';' && c != ' ' && c != '\t')) {
    state_ = State::kMalformed;
  } else if (chunk_left_ > body_bytes_max_ - std::min(body_bytes, body_bytes_max_)) {
    state_ = State::kTooLarge;
  } else {
    state_ = c == '\r'  ? State::kSizeLineFeed
             : c == ';' ? State::kExtension
                        : State::kSpaceAfterSize;
  }
}

// "5 \r\n" is a size for some and an error for others: it is one only with an extension behind it.
void ChunkDecoder::step_space(char c) {
  if (c == ';') {
    state_ = State::kExtension;
  } else if ((c != ' ' && c != '\t') || ++skipped_ > kSkippedMax) {
    state_ = State::kMalformed;
  }
}

// Passes over an extension or a trailer up to its CR; stays in (or enters) the skipping state.
void ChunkDecoder::skip(char c, State at_return) {
  const auto byte = static_cast<unsigned char>(c);
  if (c == '\r') {
    state_ = at_return;
  } else if ((byte < 0x20 && c != '\t') || byte == 0x7F || ++skipped_ > kSkippedMax) {
    state_ = State::kMalformed;
  } else if (state_ == State::kTrailerStart) {
    state_ = State::kTrailer;
  }
}

}  // namespace stator::net::detail
