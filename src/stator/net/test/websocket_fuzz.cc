// SPDX-License-Identifier: Apache-2.0
// Frames of a client, whole and in pieces: the same is heard however the bytes are cut, texts are
// UTF-8, no more is held than is allowed, and nothing is read after the end.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/random.h"
#include "stator/net/websocket.h"
#include "stator/text/utf8.h"

namespace {

using stator::net::CloseCode;
using stator::net::WebSocketReader;
using Kind = WebSocketReader::Event::Kind;

constexpr size_t kMessageMax = 300;
constexpr size_t kControlMax = 125;

using Heard = std::vector<std::tuple<Kind, std::string, CloseCode>>;

void take(WebSocketReader& reader, std::string_view bytes, Heard& heard) {
  while (const auto event = reader.next(bytes)) {
    STATOR_ASSERT(heard.empty() || (std::get<0>(heard.back()) != Kind::kClosed &&
                                    std::get<0>(heard.back()) != Kind::kRefused),
                  "W2: the end is the end");
    const bool speaks = event->kind == Kind::kText || event->kind == Kind::kPing;
    heard.emplace_back(event->kind, speaks ? std::string(event->bytes) : std::string(),
                       event->code);
    if (event->kind == Kind::kText) {
      STATOR_ASSERT(stator::text::is_valid_utf8(event->bytes), "texts are UTF-8");
      STATOR_ASSERT(event->bytes.size() <= kMessageMax, "W1: of a message");
    }
  }
  STATOR_ASSERT(reader.held_bytes() <= kMessageMax + kControlMax, "W1: of what is held");
}

Heard hear(std::string_view bytes, size_t piece_max) {
  stator::Random random(piece_max);
  WebSocketReader reader(kMessageMax);
  Heard heard;
  while (!bytes.empty()) {
    const size_t piece = std::min(1 + random.below(piece_max), bytes.size());
    const std::vector<char> copy(bytes.data(), bytes.data() + piece);
    take(reader, {copy.data(), copy.size()}, heard);
    bytes.remove_prefix(piece);
  }
  return heard;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  STATOR_ASSERT(hear(bytes, SIZE_MAX / 2) == hear(bytes, 3), "cuts do not matter");
  return 0;
}
