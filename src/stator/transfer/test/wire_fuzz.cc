// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <span>

#include "stator/transfer/metadata_place.h"
#include "stator/transfer/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  stator::transfer::decode_metadata(bytes).ignore("fuzzing");
  static_cast<void>(stator::transfer::decode_metadata_frame(
      bytes.substr(0, stator::transfer::MetadataFrame::kBytes)));
  if (size >= stator::transfer::Frame::kBytes) {
    static_cast<void>(stator::transfer::decode_frame(
        std::as_bytes(std::span(data, stator::transfer::Frame::kBytes))));
  }
  return 0;
}
