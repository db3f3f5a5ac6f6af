// SPDX-License-Identifier: Apache-2.0
#include "stator/connectors/lmcache_wire.h"

#include <algorithm>
#include <string_view>

#include "stator/core/raw_bytes.h"

namespace stator::connectors {
namespace {

constexpr size_t kKeyAt = size_t{9} * 4;
constexpr size_t kShapeAt = size_t{5} * 4;
constexpr size_t kAnswerShapeAt = size_t{4} * 4;

}  // namespace

std::optional<LmRequest> decode_lm_request(std::span<const std::byte> head,
                                           int32_t value_bytes_max) {
  if (head.size() != LmRequest::kBytes) {
    return std::nullopt;
  }
  const auto command = get_raw<int32_t>(head, 0);
  LmRequest out;
  out.command = static_cast<LmCommand>(command);
  out.meta = {.length = get_raw<int32_t>(head, 4),
              .format = get_raw<int32_t>(head, 8),
              .type = get_raw<int32_t>(head, 12)};
  for (size_t i = 0; i < out.meta.shape.size(); ++i) {
    out.meta.shape[i] = get_raw<int32_t>(head, kShapeAt + 4 * i);
  }
  const auto key = head.subspan(kKeyAt);
  std::string_view text(reinterpret_cast<const char*>(key.data()), key.size());
  text = text.substr(0, text.find_last_not_of(std::string_view(" \0", 2)) + 1);
  out.key = text;
  const bool named = out.command == LmCommand::kPut || out.command == LmCommand::kGet ||
                     out.command == LmCommand::kExist;
  if (command < static_cast<int32_t>(LmCommand::kPut) ||
      command > static_cast<int32_t>(LmCommand::kHealth) || out.meta.length < 0 ||
      out.meta.length > value_bytes_max || (named && out.key.empty())) {
    return std::nullopt;
  }
  return out;
}

std::array<std::byte, kLmAnswerBytes> encode_lm_answer(LmCode code, const LmMeta& meta) {
  std::array<std::byte, kLmAnswerBytes> out{};
  put_raw(out, 0, static_cast<int32_t>(code));
  put_raw(out, 4, meta.length);
  put_raw(out, 8, meta.format);
  put_raw(out, 12, meta.type);
  for (size_t i = 0; i < meta.shape.size(); ++i) {
    put_raw(out, kAnswerShapeAt + 4 * i, meta.shape[i]);
  }
  return out;
}

}  // namespace stator::connectors
