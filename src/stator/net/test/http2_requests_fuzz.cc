// SPDX-License-Identifier: Apache-2.0
// What a client may send, whole and in pieces: no crash, every stream is closed once, and the same
// requests arrive however the bytes are cut.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/random.h"
#include "stator/net/detail/http2_requests.h"

namespace {

using stator::TimePoint;
using stator::net::detail::Http2Requests;
using stator::net::detail::Http2Stream;
using stator::net::detail::OutputBuffer;
using stator::net::detail::ParserLimits;

using Heard = std::map<int32_t, std::string>;

Heard hear(std::string_view bytes, size_t piece_max) {
  const ParserLimits limits{2048, 20, 4096};
  stator::Random random(piece_max);
  Http2Requests server(limits, 8);
  Heard heard;
  std::map<int32_t, bool> closed;
  OutputBuffer out;
  Http2Requests::Outcome outcome = Http2Requests::Outcome::kGoOn;
  while (!bytes.empty() && outcome == Http2Requests::Outcome::kGoOn) {
    const size_t piece = std::min(1 + random.below(piece_max), bytes.size());
    const std::vector<char> copy(bytes.data(), bytes.data() + piece);
    outcome = server.receive({copy.data(), copy.size()}, TimePoint{});
    bytes.remove_prefix(piece);
    server.append_output(out);
    out.clear();
    for (const int32_t id : server.take_touched()) {
      Http2Stream* const stream = server.find(id);
      STATOR_ASSERT(stream != nullptr && stream->head, "P1: heard of from its head to forget()");
      if (stream->ended && !stream->refusal) {
        heard[id] = std::string(stream->request.method()) + " " +
                    std::string(stream->request.target()) + " " + stream->request.body();
      }
      if (stream->closed) {
        STATOR_ASSERT(!std::exchange(closed[id], true), "P1: closed once");
        server.forget(id);
      }
    }
  }
  return heard;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Heard whole = hear(bytes, SIZE_MAX / 2);
  for (const auto& [stream, said] : hear(bytes, 5)) {
    const auto same = whole.find(stream);
    STATOR_ASSERT(same == whole.end() || same->second == said, "cuts do not matter");
  }
  return 0;
}
