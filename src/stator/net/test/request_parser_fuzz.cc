// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/random.h"
#include "stator/net/detail/request_parser.h"

namespace {

using stator::net::HttpRequest;
using stator::net::detail::ParserLimits;
using stator::net::detail::RequestParser;

constexpr ParserLimits kLimits{
    .header_bytes_max = 4096, .headers_max = 20, .body_bytes_max = 16384};

struct Outcome {
  bool complete = false;
  int refused = 0;
  size_t used = 0;
  std::string text;
};

/// Parses one request from `bytes`, cut into pieces of at most `piece_max` bytes.
Outcome parse(std::string_view bytes, size_t piece_max) {
  stator::Random random(piece_max);
  RequestParser parser(kLimits);
  Outcome outcome;
  while (outcome.used < bytes.size() && !parser.complete() && !parser.refusal()) {
    const size_t piece = std::min(1 + random.below(piece_max), bytes.size() - outcome.used);
    // An own allocation lets the sanitizer see a read beyond the piece.
    const std::vector<char> copy(bytes.data() + outcome.used, bytes.data() + outcome.used + piece);
    const size_t used = parser.feed({copy.data(), copy.size()});
    STATOR_ASSERT(used <= piece, "feed uses what it was given");
    outcome.used += used;
  }
  outcome.complete = parser.complete();
  outcome.refused = parser.refusal() ? parser.refusal()->status : 0;
  if (outcome.complete) {
    const HttpRequest request = parser.take_request();
    outcome.text = std::string(request.method()) + '\n' + std::string(request.target()) + '\n';
    for (size_t i = 0; i < request.header_count(); ++i) {
      outcome.text += request.header_at(i).name;
      outcome.text += '\n';
      outcome.text += request.header_at(i).value;
      outcome.text += '\n';
    }
    outcome.text += request.body();
    STATOR_ASSERT(request.body().size() <= kLimits.body_bytes_max, "bodies are bounded");
  }
  return outcome;
}

}  // namespace

/// Any split of any bytes gives the same request, and nothing crashes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Outcome whole = parse(bytes, std::max<size_t>(size, 1));
  for (const size_t piece_max : {size_t{1}, size_t{7}, size_t{100}}) {
    const Outcome split = parse(bytes, piece_max);
    STATOR_ASSERT(split.complete == whole.complete, "splits agree on completeness");
    STATOR_ASSERT(!whole.complete || (split.text == whole.text && split.used == whole.used),
                  "splits agree on the request");
    // Beast looks for the end of the head before it judges a split one, so on input without that
    // end one may refuse what the other still waits for; they never contradict each other.
    STATOR_ASSERT(whole.refused == 0 || !split.complete, "splits agree on refusal");
  }
  return 0;
}
