// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/keep_request.h"

#include <gtest/gtest.h>

namespace stator::storage {
namespace {

std::optional<KeepRequest> decode(const std::string& packet) {
  return decode_keep_request(std::as_bytes(std::span(packet)));
}

TEST(KeepRequest, ReadsWhatItWroteAndNothingElse) {
  const KeepRequest request{.bytes = uint64_t{1} << 40, .name = "engine-0"};
  const std::string packet = encode(request);
  EXPECT_EQ(decode(packet), request);
  EXPECT_EQ(decode(packet.substr(0, KeepRequest::kHead)), std::nullopt) << "no name";
  EXPECT_EQ(decode("x" + packet.substr(1)), std::nullopt);
  const std::string longest = encode({.bytes = 1, .name = std::string(300, 'n')});
  EXPECT_EQ(decode(longest)->name.size(), KeepRequest::kNameMax);
  EXPECT_EQ(decode(longest + "n"), std::nullopt);
}

}  // namespace
}  // namespace stator::storage
