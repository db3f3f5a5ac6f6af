// SPDX-License-Identifier: Apache-2.0
// What a server may send, whole and in pieces: no crash, the same messages, one end at most.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/random.h"
#include "stator/net/detail/grpc_stream.h"

namespace {

using stator::net::GrpcCallListener;
using stator::net::GrpcOutcome;
using stator::net::detail::GrpcStream;
using stator::net::detail::OutputBuffer;

class Recorder final : public GrpcCallListener {
 public:
  void on_message(std::string_view message) override {
    STATOR_ASSERT(ends == 0, "T2: nothing after the end");
    messages.emplace_back(message);
  }
  void on_end(GrpcOutcome /*outcome*/) override { ++ends; }
  std::vector<std::string> messages;
  int ends = 0;
};

Recorder hear(std::string_view bytes, size_t piece_max) {
  stator::Random random(piece_max);
  Recorder heard;
  GrpcStream stream({"worker", "/p", false, 4096}, heard);
  OutputBuffer out;
  stream.append_output(out);
  while (!bytes.empty() && !stream.ended()) {
    const size_t piece = std::min(1 + random.below(piece_max), bytes.size());
    const std::vector<char> copy(bytes.data(), bytes.data() + piece);
    stream.receive({copy.data(), copy.size()});
    bytes.remove_prefix(piece);
    out.clear();
    stream.append_output(out);
  }
  STATOR_ASSERT(heard.ends <= 1, "T2: one end");
  return heard;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Recorder whole = hear(bytes, SIZE_MAX / 2);
  const Recorder pieces = hear(bytes, 5);
  STATOR_ASSERT(whole.messages == pieces.messages, "cuts do not matter");
  return 0;
}
