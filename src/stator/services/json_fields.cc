// SPDX-License-Identifier: Apache-2.0
#include "stator/services/json_fields.h"

#include <fmt/format.h>

namespace stator::services {
namespace {

constexpr uint32_t kDepthMax = 16;

}  // namespace

Result<Fields> Fields::parse(std::string_view text) {
  STATOR_TRY(json::Value parsed, json::parse(text.empty() ? "{}" : text, {.depth_max = kDepthMax}),
             "the body");
  if (!parsed.is_object()) {
    return Error(Code::kInvalidArgument, "the body must be a JSON object");
  }
  auto value = std::make_shared<const json::Value>(std::move(parsed));
  Fields fields(*value);
  fields.owned_ = std::move(value);
  return fields;
}

Fields::Fields(const json::Value& object, std::string where)
    : object_(&object), where_(std::move(where)) {}

const json::Value* Fields::find(std::string_view name) const {
  const json::Value* value = object_->find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool Fields::has(std::string_view name) const {
  return find(name) != nullptr;
}

Error Fields::wrong(std::string_view name, std::string_view expected) const {
  return {Code::kInvalidArgument, fmt::format("{}{} must be {}", where_, name, expected)};
}

Result<std::string> Fields::text(std::string_view name) const {
  const json::Value* value = find(name);
  if (value == nullptr || !value->is_string()) {
    return wrong(name, "a string");
  }
  return std::string(value->text());
}

Result<std::string> Fields::text_or(std::string_view name, std::string_view fallback) const {
  return has(name) ? text(name) : Result<std::string>(std::string(fallback));
}

Result<uint64_t> Fields::number(std::string_view name, uint64_t max) const {
  const json::Value* value = find(name);
  const auto number = value != nullptr ? value->as_uint64() : std::nullopt;
  if (!number || *number > max) {
    return wrong(name, fmt::format("a whole number from 0 to {}", max));
  }
  return *number;
}

Result<uint64_t> Fields::number_or(std::string_view name, uint64_t fallback, uint64_t max) const {
  return has(name) ? number(name, max) : Result<uint64_t>(fallback);
}

Result<std::optional<uint32_t>> Fields::rank() const {
  if (!has("dp_rank")) {
    return std::optional<uint32_t>();
  }
  STATOR_TRY(const uint64_t given, number("dp_rank", kRankMax));
  return std::optional(static_cast<uint32_t>(given));
}

Result<std::optional<double>> Fields::real(std::string_view name, double min, double max) const {
  const json::Value* value = find(name);
  if (value == nullptr) {
    return std::optional<double>();
  }
  const double number = value->as_double().value_or(min - 1);
  if (!(number >= min && number <= max)) {
    return wrong(name, fmt::format("a number from {} to {}", min, max));
  }
  return std::optional<double>(number);
}

Result<std::optional<bool>> Fields::flag(std::string_view name) const {
  const json::Value* value = find(name);
  if (value == nullptr) {
    return std::optional<bool>();
  }
  if (!value->is_bool()) {
    return wrong(name, "true or false");
  }
  return std::optional<bool>(*value->as_bool());
}

std::optional<uint64_t> as_hash(const json::Value& value) {
  if (const auto number = value.as_uint64()) {
    return number;
  }
  const auto number = value.as_int64();
  return number ? std::optional(static_cast<uint64_t>(*number)) : std::nullopt;
}

Result<const json::Value*> Fields::array(std::string_view name) const {
  const json::Value* value = find(name);
  if (value != nullptr && !value->is_array()) {
    return wrong(name, "an array");
  }
  return value;
}

Result<const json::Value*> Fields::object(std::string_view name) const {
  const json::Value* value = find(name);
  if (value != nullptr && !value->is_object()) {
    return wrong(name, "an object");
  }
  return value;
}

Result<std::vector<uint64_t>> Fields::hashes(std::string_view name) const {
  STATOR_TRY(const json::Value* given, array(name));
  std::vector<uint64_t> hashes;
  if (given == nullptr) {
    return hashes;
  }
  hashes.reserve(given->size());
  for (const json::Value& value : given->elements()) {
    const auto hash = as_hash(value);
    if (!hash) {
      return wrong(name, "an array of whole 64-bit numbers");
    }
    hashes.push_back(*hash);
  }
  return hashes;
}

Result<std::vector<TokenId>> Fields::tokens(std::string_view name) const {
  STATOR_TRY(const std::vector<uint64_t> given, hashes(name));
  std::vector<TokenId> tokens;
  tokens.reserve(given.size());
  for (const uint64_t token : given) {
    if (token > std::numeric_limits<TokenId>::max()) {
      return wrong(name, "an array of token ids from 0 to 4294967295");
    }
    tokens.push_back(static_cast<TokenId>(token));
  }
  return tokens;
}

Result<std::vector<std::string>> Fields::texts(std::string_view name) const {
  STATOR_TRY(const json::Value* given, array(name));
  std::vector<std::string> texts;
  if (given == nullptr) {
    return texts;
  }
  for (const json::Value& value : given->elements()) {
    if (!value.is_string()) {
      return wrong(name, "an array of strings");
    }
    texts.emplace_back(value.text());
  }
  return texts;
}

}  // namespace stator::services
