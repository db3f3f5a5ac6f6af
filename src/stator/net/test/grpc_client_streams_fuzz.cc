// SPDX-License-Identifier: Apache-2.0
// What a server may send, whole and in pieces: no crash, the same messages, one end at most.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/random.h"
#include "stator/net/detail/grpc_client_streams.h"

namespace {

using stator::net::GrpcCallListener;
using stator::net::GrpcOutcome;
using stator::net::detail::GrpcClientStreams;
using stator::net::detail::OutputBuffer;

class Recorder final : public GrpcCallListener {
 public:
  void on_message(std::string_view message) override {
    STATOR_ASSERT(ends == 0, "T2: nothing after the end");
    messages.emplace_back(message);
    if (gives_up) {
      gives_up();
    }
  }
  void on_end(GrpcOutcome /*outcome*/) override { ++ends; }
  std::vector<std::string> messages;
  int ends = 0;
  std::function<void()> gives_up;  // from inside the callback
};

/// What two calls on one connection hear; a third is given up at its first message.
std::vector<std::string> hear(std::string_view bytes, size_t piece_max) {
  stator::Random random(piece_max);
  Recorder heard[3];
  GrpcClientStreams streams("worker", false);
  int32_t ids[3];
  for (size_t i = 0; i < 3; ++i) {
    ids[i] = streams.begin({"/p", 4096}, heard[i]);
  }
  heard[2].gives_up = [&] { streams.cancel(ids[2]); };
  streams.finish_sending(ids[0]);
  OutputBuffer out;
  streams.append_output(out);
  while (!bytes.empty() && !streams.given_up()) {
    const size_t piece = std::min(1 + random.below(piece_max), bytes.size());
    const std::vector<char> copy(bytes.data(), bytes.data() + piece);
    streams.receive({copy.data(), copy.size()});
    bytes.remove_prefix(piece);
    out.clear();
    streams.append_output(out);
  }
  streams.end_all({14, "over"});
  STATOR_ASSERT(streams.open_calls() == 0, "all have ended");
  STATOR_ASSERT(heard[0].ends == 1 && heard[1].ends == 1, "T2: one end each");
  STATOR_ASSERT(heard[2].messages.size() <= 1 && heard[2].ends <= 1, "T2: nothing after cancel");
  std::vector<std::string> all;
  for (const Recorder& each : heard) {
    all.insert(all.end(), each.messages.begin(), each.messages.end());
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  STATOR_ASSERT(hear(bytes, SIZE_MAX / 2) == hear(bytes, 5), "cuts do not matter");
  return 0;
}
