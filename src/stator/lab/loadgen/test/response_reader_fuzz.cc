// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/core/random.h"
#include "stator/lab/loadgen/response_reader.h"

namespace {

using stator::loadgen::ResponseReader;

struct Outcome {
  ResponseReader::State state = ResponseReader::State::kMore;
  size_t used = 0;
  uint32_t chunks = 0;
  uint64_t tokens = 0;
  std::string text;
};

Outcome read(std::string_view bytes, size_t piece_max, uint64_t seed) {
  stator::Random random(seed);
  ResponseReader reader;
  reader.reset();
  Outcome out;
  reader.capture(&out.text, 1 << 16);
  while (out.used < bytes.size() && out.state == ResponseReader::State::kMore) {
    const size_t count = std::min(bytes.size() - out.used, 1 + random.below(piece_max));
    out.state = reader.feed(bytes.substr(out.used, count));
    out.used += count;
  }
  out.chunks = reader.counts().chunks;
  out.tokens = reader.counts().completion_tokens;
  return out;
}

}  // namespace

/// An answer read byte by byte gives what it gives in larger pieces. (What follows an answer in the
/// same piece breaks it, so only answers that are not over early are compared.)
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Outcome single = read(bytes, 1, 1);
  if (single.used < bytes.size()) {
    return 0;
  }
  for (const size_t piece_max : {size_t{7}, std::max<size_t>(1, size)}) {
    const Outcome pieces = read(bytes, piece_max, size);
    STATOR_ASSERT(pieces.state == single.state, "the end does not depend on the cutting");
    STATOR_ASSERT(pieces.chunks == single.chunks, "nor do the chunks");
    STATOR_ASSERT(pieces.tokens == single.tokens, "nor the usage");
    STATOR_ASSERT(pieces.text == single.text, "nor the text");
  }
  return 0;
}
