// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace stator::tokenizer {
namespace {

/// Writes integers beyond 64 bits as floating point ("1000000000000000019884624838656e0"):
/// published tokenizer_config.json files carry one as "model_max_length", and simdjson refuses the
/// whole file.
std::string widen_big_integers(std::string_view text) {
  constexpr size_t kDigitsMax = 18;  // any such number fits 64 bits
  std::string out;
  out.reserve(text.size() + 16);
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    out += c;
    if (c == '\\' && in_string && i + 1 < text.size()) {
      out += text[++i];
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && c >= '0' && c <= '9') {
      const size_t end = std::min(text.find_first_not_of("0123456789.eE+-", i), text.size());
      const std::string_view number = text.substr(i, end - i);
      out += number.substr(1);
      i = end - 1;
      if (number.size() > kDigitsMax && number.find_first_of(".eE") == std::string_view::npos) {
        out += "e0";
      }
    }
  }
  return out;
}

Error wrong_type(std::string_view name, std::string_view expected) {
  return Error(Code::kCorrupt, fmt::format("field '{}' must be {}", name, expected));
}

template <typename T>
Result<T> get_as(Json object, std::string_view name, std::string_view expected) {
  T value;
  const auto field = find_field(object, name);
  if (!field || field->get(value) != simdjson::SUCCESS) {
    return wrong_type(name, expected);
  }
  return value;
}

}  // namespace

std::optional<Json> find_field(Json object, std::string_view name) {
  Json field;
  if (object[name].get(field) != simdjson::SUCCESS || field.is_null()) {
    return std::nullopt;
  }
  return field;
}

Result<std::string_view> get_string(Json object, std::string_view name) {
  return get_as<std::string_view>(object, name, "a string");
}

Result<std::optional<std::string_view>> find_string(Json object, std::string_view name) {
  if (!find_field(object, name)) {
    return std::optional<std::string_view>();
  }
  STATOR_TRY(const std::string_view value, get_string(object, name));
  return std::optional(value);
}

Result<bool> get_bool(Json object, std::string_view name, bool if_absent) {
  if (!find_field(object, name)) {
    return if_absent;
  }
  return get_as<bool>(object, name, "true or false");
}

Result<uint64_t> get_unsigned(Json object, std::string_view name, uint64_t if_absent) {
  if (!find_field(object, name)) {
    return if_absent;
  }
  return get_as<uint64_t>(object, name, "a non-negative integer");
}

Result<simdjson::dom::array> get_array(Json object, std::string_view name) {
  return get_as<simdjson::dom::array>(object, name, "an array");
}

Result<simdjson::dom::object> get_object(Json object, std::string_view name) {
  return get_as<simdjson::dom::object>(object, name, "an object");
}

Result<std::string_view> get_type(Json step) {
  return get_string(step, "type");
}

Error unsupported_step(std::string_view kind, std::string_view type) {
  return Error(
      Code::kUnsupported,
      fmt::format("tokenizer.json uses the {} '{}', which this build cannot run", kind, type));
}

Result<Json> parse_json(simdjson::dom::parser& parser, std::string_view text,
                        std::string_view file_name) {
  Json root;
  auto error = parser.parse(text.data(), text.size()).get(root);
  if (error == simdjson::NUMBER_ERROR || error == simdjson::NUMBER_OUT_OF_RANGE) {
    error = parser.parse(widen_big_integers(text)).get(root);
  }
  if (error != simdjson::SUCCESS) {
    return Error(Code::kCorrupt, fmt::format("{} is not valid JSON: {}", file_name,
                                             simdjson::error_message(error)));
  }
  if (!root.is_object()) {
    return Error(Code::kCorrupt, fmt::format("{} must be a JSON object", file_name));
  }
  return root;
}

}  // namespace stator::tokenizer
