// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/json_read.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stator::fake_engine {
namespace {

constexpr int kSchemaDepthMax = 16;
constexpr int64_t kItemsMax = 16;
constexpr size_t kSampleBytesMax = 4'096;

json::Value sample(const json::Value& schema, int depth) {
  if (!schema.is_object() || depth > kSchemaDepthMax) {
    return nullptr;
  }
  if (const auto* constant = schema.find("const")) {
    return *constant;
  }
  if (const auto* allowed = schema.find("enum");
      allowed != nullptr && allowed->is_array() && !allowed->elements().empty()) {
    return allowed->elements().front();
  }
  for (const std::string_view choice : {"anyOf", "oneOf"}) {
    const auto* options = schema.find(choice);
    if (options != nullptr && options->is_array() && !options->elements().empty()) {
      return sample(options->elements().front(), depth + 1);
    }
  }
  const std::string type = read_text(schema, "type").value_or("object");
  if (type == "string") {
    return "";
  }
  if (type == "integer" || type == "number") {
    const auto* low = schema.find("minimum");
    return low != nullptr ? *low : json::Value(0);
  }
  if (type == "boolean") {
    return false;
  }
  if (type == "array") {
    const int64_t most = depth < 3 ? kItemsMax : 1;  // arrays of arrays multiply
    const int64_t items =
        std::clamp<int64_t>(read_integer(schema, "minItems").value_or(0), 0, most);
    const auto* item = schema.find("items");
    return json::Value::array(json::Value::Array(
        static_cast<size_t>(items), item == nullptr ? json::Value() : sample(*item, depth + 1)));
  }
  if (type == "null") {
    return nullptr;
  }
  json::Value out = json::Value::object();
  const auto* properties = schema.find("properties");
  for (const std::string& name : read_texts(schema, "required")) {
    const json::Value* property = nullptr;
    if (properties != nullptr && properties->is_object()) {
      property = properties->find(name);
    }
    out[name] = property != nullptr ? sample(*property, depth + 1) : json::Value();
  }
  return out;
}

/// Recursive descent over alternatives, sequences and atoms; writes the first way through.
class RegexSampler {
 public:
  explicit RegexSampler(std::string_view pattern) : rest_(pattern) {}

  std::optional<std::string> run() {
    auto out = alternatives(0);
    return rest_.empty() ? out : std::nullopt;
  }

 private:
  std::optional<std::string> alternatives(int depth) {
    auto out = sequence(depth);
    while (out && rest_.starts_with('|')) {
      rest_.remove_prefix(1);
      if (!sequence(depth)) {
        return std::nullopt;
      }
    }
    return out;
  }

  std::optional<std::string> sequence(int depth) {
    std::string out;
    while (!rest_.empty() && rest_.front() != '|' && rest_.front() != ')') {
      const auto atom = atom_text(depth);
      const auto count = atom ? repetitions() : std::nullopt;
      if (!count || out.size() + atom->size() * *count > kSampleBytesMax) {
        return std::nullopt;
      }
      for (size_t i = 0; i < *count; ++i) {
        out += *atom;
      }
    }
    return out;
  }

  std::optional<std::string> atom_text(int depth) {
    const char head = rest_.front();
    rest_.remove_prefix(1);
    if (head == '(') {
      if (depth > kSchemaDepthMax) {
        return std::nullopt;
      }
      if (rest_.starts_with("?:")) {
        rest_.remove_prefix(2);
      }
      auto inner = alternatives(depth + 1);
      if (!inner || !rest_.starts_with(')')) {
        return std::nullopt;
      }
      rest_.remove_prefix(1);
      return inner;
    }
    if (head == '[') {
      const size_t end = rest_.empty() ? std::string_view::npos : rest_.find(']', 1);
      if (end == std::string_view::npos || rest_.front() == '^') {
        return std::nullopt;
      }
      const std::string first = rest_.front() == '\\' && rest_.size() > 1
                                    ? escaped(rest_[1])
                                    : std::string(1, rest_.front());
      rest_.remove_prefix(end + 1);
      return first;
    }
    if (head == '\\') {
      if (rest_.empty()) {
        return std::nullopt;
      }
      const char letter = rest_.front();
      rest_.remove_prefix(1);
      return escaped(letter);
    }
    return std::string(1, head == '.' ? 'a' : head);
  }

  static std::string escaped(char letter) {
    switch (letter) {
      case 'd':
        return "0";
      case 'w':
        return "a";
      case 's':
        return " ";
      case 'n':
        return "\n";
      default:
        return std::string(1, letter);
    }
  }

  std::optional<size_t> repetitions() {
    if (rest_.empty()) {
      return 1;
    }
    const char sign = rest_.front();
    if (sign == '?' || sign == '*' || sign == '+') {
      rest_.remove_prefix(1);
      return sign == '+' ? 1 : 0;
    }
    if (sign != '{') {
      return 1;
    }
    const size_t end = rest_.find('}');
    if (end == std::string_view::npos) {
      return std::nullopt;
    }
    size_t count = 0;
    for (const char digit : rest_.substr(1, rest_.find_first_of(",}") - 1)) {
      if (digit < '0' || digit > '9' || count > kSampleBytesMax) {
        return std::nullopt;
      }
      count = count * 10 + static_cast<size_t>(digit - '0');
    }
    rest_.remove_prefix(end + 1);
    return count;
  }

  std::string_view rest_;
};

}  // namespace

const json::Value* find_member(const json::Value& object, std::string_view key) {
  const auto* value = object.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<std::string> read_text(const json::Value& object, std::string_view key) {
  const auto* value = find_member(object, key);
  return value != nullptr && value->is_string() ? std::optional<std::string>(value->text())
                                                : std::nullopt;
}

std::optional<int64_t> read_integer(const json::Value& object, std::string_view key) {
  const auto number = read_number(object, key);
  const bool whole = number && *number == std::floor(*number) && std::abs(*number) < 9e15;
  return whole ? std::optional(static_cast<int64_t>(*number)) : std::nullopt;
}

std::optional<double> read_number(const json::Value& object, std::string_view key) {
  const auto* value = find_member(object, key);
  if (value == nullptr || !value->is_number()) {
    return std::nullopt;
  }
  return value->as_double();
}

bool read_flag(const json::Value& object, std::string_view key, bool otherwise) {
  const auto* value = find_member(object, key);
  return value != nullptr && value->is_bool() ? *value->as_bool() : otherwise;
}

std::vector<std::string> read_texts(const json::Value& object, std::string_view key) {
  const auto* value = find_member(object, key);
  std::vector<std::string> out;
  if (value != nullptr && value->is_string()) {
    out.emplace_back(value->text());
  } else if (value != nullptr && value->is_array()) {
    for (const auto& element : value->elements()) {
      if (element.is_string()) {
        out.emplace_back(element.text());
      }
    }
  }
  return out;
}

std::optional<std::vector<TokenId>> read_ids(const json::Value& value) {
  if (!value.is_array()) {
    return std::nullopt;
  }
  std::vector<TokenId> ids;
  ids.reserve(value.elements().size());
  for (const auto& element : value.elements()) {
    const auto id = element.as_uint64();
    if (!id || *id > std::numeric_limits<TokenId>::max()) {
      return std::nullopt;
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

ParsedBody parse_body(std::string_view text) {
  ParsedBody out;
  json::Cursor cursor(text, json::ParseLimits().depth_max);
  const bool whole = cursor.skip() && cursor.finish();
  out.error_at = cursor.position();
  if (!whole) {
    return out;
  }
  if (auto value = json::parse(text); value && value->is_object()) {
    out.object = std::move(*value);
    out.ok = true;
  }
  return out;
}

std::string sample_of_schema(const json::Value& schema) {
  return json::to_text(sample(schema, 0));
}

std::optional<std::string> sample_of_regex(std::string_view pattern) {
  return RegexSampler(pattern).run();
}

}  // namespace stator::fake_engine
