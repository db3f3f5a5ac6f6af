// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/field_check.h"

#include <algorithm>

namespace stator::op {

using json::Value;

namespace {

/// Kubernetes' int32.
constexpr int64_t kIntegerMax = 2'147'483'647;

}  // namespace

void FieldCheck::set(std::string what) {
  if (!what_) {
    what_ = std::move(what);
  }
}

void FieldCheck::invalid(std::string_view path, const Value& value, std::string_view why) {
  std::string text = json::to_text(value);
  if (text.size() > 120) {
    text = text.substr(0, 117) + "...";
  }
  set(fmt::format("{}: Invalid value: {}: {}", path, text, why));
}

void FieldCheck::required(std::string_view path, std::string_view why) {
  set(fmt::format("{}: Required value{}{}", path, why.empty() ? "" : ": ", why));
}

void FieldCheck::forbidden(std::string_view path, std::string_view why) {
  set(fmt::format("{}: Forbidden: {}", path, why));
}

void FieldCheck::unsupported(std::string_view path, std::string_view value,
                             std::span<const std::string_view> allowed) {
  std::string list;
  for (const std::string_view word : allowed) {
    list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", word);
  }
  set(fmt::format("{}: Unsupported value: \"{}\": supported values: {}", path, value, list));
}

const Value* FieldCheck::of_kind(const Value& parent, std::string_view path, std::string_view key,
                                 json::Kind kind) {
  const Value* value = parent.find(key);
  if (value == nullptr || value->is_null()) {
    return nullptr;
  }
  if (value->kind() != kind) {
    invalid(fmt::format("{}.{}", path, key), *value,
            fmt::format("must be {}", json::describe(kind)));
    return nullptr;
  }
  return value;
}

const Value* FieldCheck::object(const Value& parent, std::string_view path, std::string_view key) {
  return of_kind(parent, path, key, json::Kind::kObject);
}

const Value* FieldCheck::array(const Value& parent, std::string_view path, std::string_view key) {
  return of_kind(parent, path, key, json::Kind::kArray);
}

std::optional<std::string_view> FieldCheck::string(const Value& parent, std::string_view path,
                                                   std::string_view key) {
  const Value* value = of_kind(parent, path, key, json::Kind::kString);
  return value == nullptr ? std::nullopt : value->as_string();
}

std::optional<bool> FieldCheck::boolean(const Value& parent, std::string_view path,
                                        std::string_view key) {
  const Value* value = of_kind(parent, path, key, json::Kind::kBool);
  return value == nullptr ? std::nullopt : value->as_bool();
}

std::optional<int64_t> FieldCheck::integer(const Value& parent, std::string_view path,
                                           std::string_view key) {
  const Value* value = of_kind(parent, path, key, json::Kind::kNumber);
  if (value == nullptr) {
    return std::nullopt;
  }
  const auto number = value->as_int64();
  if (!number) {
    const bool is_whole = value->text().find_first_of(".eE") == std::string_view::npos;
    invalid(fmt::format("{}.{}", path, key), *value,
            is_whole ? fmt::format("must be at most {}", kIntegerMax) : "must be an integer");
  }
  return number;
}

std::optional<int64_t> FieldCheck::at_least(const Value& parent, std::string_view path,
                                            std::string_view key, int64_t min) {
  const auto number = integer(parent, path, key);
  if (number && *number < min) {
    invalid(fmt::format("{}.{}", path, key), *parent.find(key),
            fmt::format("must be at least {}", min));
  } else if (number && *number > kIntegerMax) {
    invalid(fmt::format("{}.{}", path, key), *parent.find(key),
            fmt::format("must be at most {}", kIntegerMax));
  }
  return number;
}

void FieldCheck::above_zero(const Value& parent, std::string_view path, std::string_view key) {
  const Value* value = of_kind(parent, path, key, json::Kind::kNumber);
  if (value != nullptr && value->as_double().value_or(0) <= 0) {
    invalid(fmt::format("{}.{}", path, key), *value, "must be more than 0");
  }
}

void FieldCheck::one_of(const Value& parent, std::string_view path, std::string_view key,
                        std::span<const std::string_view> allowed) {
  const auto text = string(parent, path, key);
  if (text && std::ranges::find(allowed, *text) == allowed.end()) {
    unsupported(fmt::format("{}.{}", path, key), *text, allowed);
  }
}

void FieldCheck::string_map(const Value& parent, std::string_view path, std::string_view key) {
  const Value* map = object(parent, path, key);
  if (map == nullptr) {
    return;
  }
  for (const json::Member& member : map->members()) {
    if (!member.value.is_string()) {
      invalid(fmt::format("{}.{}[{}]", path, key, member.key), member.value,
              "must be a string: quote it");
    }
  }
}

}  // namespace stator::op
