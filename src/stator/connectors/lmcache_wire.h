// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace stator::connectors {

/// The protocol of LMCache's remote server ("lm://HOST:PORT"), as LMCache 0.3 to 0.5 speak it: a
/// message is a fixed head of native 32-bit integers, then a value of so many bytes.
///
///   request  command  length  format  type  location  shape[4]  key[150], blanks behind it
///   answer   code  length  format  type  shape[4]  location
///
/// A put is not answered. Source: LMCache's lmcache/v1/protocol.py.
enum class LmCommand : int32_t { kPut = 1, kGet = 2, kExist = 3, kList = 4, kHealth = 5 };

/// What a value is to LMCache; nothing to us. Kept with the value.
struct LmMeta {
  int32_t length = 0;  ///< bytes
  int32_t format = 1;
  int32_t type = 2;  ///< of tensors, by LMCache's own number; 2 = half
  std::array<int32_t, 4> shape{};
  friend bool operator==(const LmMeta&, const LmMeta&) = default;
};

struct LmRequest {
  static constexpr size_t kBytes = size_t{9} * 4 + 150;
  LmCommand command = LmCommand::kHealth;
  LmMeta meta;
  std::string key;
};
/// Nothing for what no client of LMCache sends: an unknown command, a length below 0 or above
/// `value_bytes_max`, no key where one is needed. The connection is of no use then.
std::optional<LmRequest> decode_lm_request(std::span<const std::byte> head,
                                           int32_t value_bytes_max);

constexpr size_t kLmAnswerBytes = size_t{9} * 4;
enum class LmCode : int32_t { kSuccess = 200, kFail = 400 };
std::array<std::byte, kLmAnswerBytes> encode_lm_answer(LmCode code, const LmMeta& meta = {});

}  // namespace stator::connectors
