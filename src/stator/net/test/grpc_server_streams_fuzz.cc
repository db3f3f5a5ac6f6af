// SPDX-License-Identifier: Apache-2.0
// What a client may send, whole and in pieces: no crash, R1, and the same arrivals as long as both
// connections last: one may be given up before a call is refused, or after.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/random.h"
#include "stator/net/detail/grpc_server_streams.h"

namespace {

using stator::net::detail::GrpcArrival;
using stator::net::detail::GrpcServerStreams;
using stator::net::detail::OutputBuffer;

using Calls = std::map<int32_t, std::string>;  // by stream: the path and all messages

Calls hear(std::string_view bytes, size_t piece_max) {
  stator::Random random(piece_max);
  GrpcServerStreams server({.message_bytes_max = 4096, .streams_max = 8});
  Calls calls;
  bool broken = false;
  std::map<int32_t, bool> gone;
  OutputBuffer out;
  while (!bytes.empty() && !broken) {
    const size_t piece = std::min(1 + random.below(piece_max), bytes.size());
    const std::vector<char> copy(bytes.data(), bytes.data() + piece);
    broken = !server.receive({copy.data(), copy.size()});
    bytes.remove_prefix(piece);
    server.append_output(out);
    out.clear();
    for (const GrpcArrival& arrival : server.take_arrivals()) {
      const bool begins = arrival.kind == GrpcArrival::Kind::kCall;
      STATOR_ASSERT(begins != gone.contains(arrival.stream), "R1: kCall first, and once");
      STATOR_ASSERT(begins || !gone[arrival.stream], "R1: kGone last");
      gone[arrival.stream] = arrival.kind == GrpcArrival::Kind::kGone;
      if (arrival.kind == GrpcArrival::Kind::kMessage || begins) {
        calls[arrival.stream] += arrival.bytes + "\n";
      }
    }
  }
  return calls;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Calls whole = hear(bytes, SIZE_MAX / 2);
  for (const auto& [stream, said] : hear(bytes, 5)) {
    const auto same = whole.find(stream);
    STATOR_ASSERT(
        same == whole.end() || same->second.starts_with(said) || said.starts_with(same->second),
        "cuts do not matter");
  }
  return 0;
}
