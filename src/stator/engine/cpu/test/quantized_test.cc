// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/quantized.h"

#include <gtest/gtest.h>

#include <array>
#include <string_view>
#include <vector>

namespace stator::engine::cpu {
namespace {

struct Block {
  Dtype dtype;
  size_t elements;
  std::string_view hex;
  std::array<float, 4> values;  // of elements 0, 1, the middle one and the last
  double weighted_sum;          // of element i times i + 1
};

// Random blocks and what PyPI's gguf 0.17 makes of them (gguf.quants.dequantize).
constexpr Block kBlocks[] = {
    {Dtype::kQ8_0,
     32,
     "4c22becf931aed15f5d3ef2d059d9f3c36ec6d2ec75220cd240786de399208950e0f",
     {-0.811706543F, -0.602630615F, 1.34054565F, 0.18447876F},
     -65.36697387695312},
    {Dtype::kQ4_0,
     32,
     "4c22181807290b553b68e16ee2c9089f1a1b",
     {0.0F, 0.0F, -0.0860900879F, -0.0860900879F},
     -12.876617431640625},
    {Dtype::kQ4K,
     256,
     "4c225a2846a6e42832b300b1893f0dbcff405e08089c191d9d92be73db872764ed7f48e3a8154984"
     "10998c6b50a33d6e2fe594aa616e38964ac13e2ceeefe2bc0ecdb9c149eecdf4a06e44c94f68c148"
     "58c5ea51943007a695287ea628363bb20d9987de3bbfef4ac19a52f073a76100b9d2b0134cb134f9"
     "6d5ea2f1c505644c32f7a623fa62615067c1080b3d2d47e4",
     {-0.592956543F, -1.6998291F, 2.18774414F, 0.604309082F},
     72654.57528686523},
    {Dtype::kQ6K,
     256,
     "1d5aa4a9093dcd95e712a33e0ec0a7787351ba306b7bf5c5347b777986c1c4077f5621411daafbb4"
     "27370b85a171ce5f5ee1ee40991f4217376dcd9b4c8816a9b8a62c85496a74ee26728dedfa7a0a35"
     "d502b09b61974da19dd8773f936a544cf94bc07c0ac4e3bd5fe6e14af9cadfb85a875da7ebbbfd37"
     "ec2b4963587773d43b94b9d731e55ba87d723501c3e8cbae1d1da139ff7bf0d1e7c9e3e92ff4b66d"
     "045efcf466853ac2b19f5a53cf13e4e09a0c74626ea3311a2c86ea97f26a8ad95a6409a8f26bd864"
     "61b2f5e6cb90cc7a4c22",
     {32.0993042F, -24.3511963F, -28.6311035F, 43.5123901F},
     5594.834930419922},
};

std::vector<std::byte> from_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<std::byte> out;
  for (size_t i = 0; i < hex.size(); i += 2) {
    out.push_back(static_cast<std::byte>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  return out;
}

TEST(Quantized, WidensBlocksAsTheFormatMeans) {
  for (const Block& block : kBlocks) {
    const std::vector<std::byte> bytes = from_hex(block.hex);
    ASSERT_EQ(bytes.size(), row_bytes(block.dtype, block.elements));
    std::vector<float> out(block.elements);

    widen_row(block.dtype, bytes.data(), out.size(), out.data());

    EXPECT_FLOAT_EQ(out[0], block.values[0]);
    EXPECT_FLOAT_EQ(out[1], block.values[1]);
    EXPECT_FLOAT_EQ(out[out.size() / 2], block.values[2]);
    EXPECT_FLOAT_EQ(out.back(), block.values[3]);
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      sum += out[i] * static_cast<double>(i + 1);
    }
    EXPECT_NEAR(sum, block.weighted_sum, 1e-2) << to_string(block.dtype);
  }
}

}  // namespace
}  // namespace stator::engine::cpu
