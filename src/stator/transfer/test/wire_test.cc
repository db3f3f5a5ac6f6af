// SPDX-License-Identifier: Apache-2.0
#include "stator/transfer/wire.h"

#include <gtest/gtest.h>

namespace stator::transfer {
namespace {

TEST(Wire, FramesReadBackAndDamagedOnesDoNot) {
  const Frame frame{.type = Frame::Type::kWrite,
                    .flags = Frame::kLast,
                    .request = 7,
                    .segment = 1,
                    .segments = 2,
                    .key = {std::byte{1}, std::byte{2}},
                    .addr = 0x1234,
                    .len = 4096,
                    .payload_crc = 99,
                    .epoch = 5};
  auto bytes = encode(frame);

  EXPECT_EQ(decode_frame(bytes), frame);
  for (size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] ^= std::byte{2};
    EXPECT_FALSE(decode_frame(bytes)) << at;
    bytes[at] ^= std::byte{2};
  }
  EXPECT_FALSE(decode_frame(encode(Frame{.len = Frame::kSegmentMax + 1})));
}

TEST(Wire, MetadataReadsBackAndDamagedOnesDoNot) {
  const Metadata metadata{
      .agent = "prefill-0",
      .epoch = 42,
      .backends = {{"tcp", "127.0.0.1:80"}, {"shm", "x"}},
      .regions = {{.type = MemType::kDram, .desc = {.addr = 1, .len = 2, .dev = 3}}}};
  std::string blob = encode(metadata);

  const auto read = decode_metadata(blob);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->agent, "prefill-0");
  EXPECT_EQ(read->epoch, 42U);
  EXPECT_EQ(read->backends, metadata.backends);
  EXPECT_EQ(read->regions.at(0).desc, metadata.regions[0].desc);
  for (size_t at = 0; at < blob.size(); ++at) {
    blob[at] ^= 8;
    EXPECT_FALSE(decode_metadata(blob)) << at;
    blob[at] ^= 8;
    EXPECT_FALSE(decode_metadata(std::string_view(blob).substr(0, at)));
  }
}

}  // namespace
}  // namespace stator::transfer
