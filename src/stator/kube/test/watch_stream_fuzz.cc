// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/kube/watch_stream.h"

namespace {

std::string cut(std::string_view text, size_t piece, stator::kube::ObjectSplitter::Mode mode) {
  stator::kube::ObjectSplitter splitter(mode, 4096);
  std::string all;
  for (size_t i = 0; i < text.size(); i += piece) {
    const auto status =
        splitter.feed(text.substr(i, piece), [&](std::string_view object) -> stator::Status {
          all.append(object).push_back('\n');
          return {};
        });
    if (!status) {
      break;
    }
  }
  return all;
}

}  // namespace

/// The pieces in which bytes come make no difference.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) {
    return 0;
  }
  using Mode = stator::kube::ObjectSplitter::Mode;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t piece = 1 + data[0] % 16;
  for (const Mode mode : {Mode::kValues, Mode::kItems}) {
    STATOR_ASSERT(cut(text, piece, mode) == cut(text, std::max<size_t>(text.size(), 1), mode),
                  "any pieces give the same objects");
  }
  return 0;
}
