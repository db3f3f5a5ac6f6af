// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/access/jwt.h"
#include "stator/core/assert.h"

/// A key set, a zero byte, a token: nothing that was not signed is accepted.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t at = input.find('\0');
  const std::string_view token = at == std::string_view::npos ? input : input.substr(at + 1);
  static const auto known = access::JwkSet::parse(
      R"({"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]})");
  const auto claims = known->verify(token, {}, WallTime(std::chrono::seconds(1)));
  STATOR_ASSERT(!claims, "nobody has the private key");
  static_cast<void>(access::looks_like_jwt(token));
  if (const auto given = access::JwkSet::parse(input.substr(0, at))) {
    static_cast<void>(given->verify(token, {}, WallTime(std::chrono::seconds(1))));
  }
  return 0;
}
