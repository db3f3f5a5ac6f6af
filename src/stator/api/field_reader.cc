// SPDX-License-Identifier: Apache-2.0
#include "stator/api/field_reader.h"

#include <charconv>
#include <cmath>
#include <system_error>

#include <fmt/format.h>

namespace stator::api {
namespace {

constexpr size_t kMaxNameBytes = 64;  // of a client's own key, echoed in a message

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

template <typename Number>
std::errc parse(std::string_view spelling, Number& value) {
  return std::from_chars(spelling.data(), spelling.data() + spelling.size(), value).ec;
}

std::string range_text(Range range) {
  return range.open_low ? fmt::format("must be above {} and at most {}", range.low, range.high)
                        : fmt::format("must be from {} to {}", range.low, range.high);
}

}  // namespace

std::string Path::text() const {
  std::string out = parent_ != nullptr ? parent_->text() : std::string();
  if (index_ != kNoIndex) {
    return out + fmt::format("[{}]", index_);
  }
  if (!out.empty()) {
    out.push_back('.');
  }
  return out.append(name_.substr(0, kMaxNameBytes));
}

void FieldReader::type_error(const Path& path, std::string_view expected) {
  if (ended()) {
    return;
  }
  const json::Kind kind = json_.peek();
  if (kind == json::Kind::kInvalid) {
    json_.skip();  // not JSON at all: let the cursor say so
    return;
  }
  std::string name = path.text();
  const std::string_view subject = name.empty() ? "request body" : std::string_view(name);
  ApiError error = validation_error(
      name, fmt::format("{} must be {}, not {}", subject, expected, describe(kind)));
  type_error_ = std::move(error);
}

void FieldReader::adopt(ApiError error) {
  const Rank rank = error.code() == Code::kUnsupported ? Rank::kUnsupported : Rank::kRule;
  if (std::optional<ApiError>& first = violations_[static_cast<size_t>(rank)]; !first) {
    first = std::move(error);
  }
}

void FieldReader::violation(const Path& path, std::string_view text, Rank rank) {
  std::optional<ApiError>& first = violations_[static_cast<size_t>(rank)];
  if (first) {
    return;
  }
  std::string name = path.text();
  const std::string message = fmt::format("{} {}", name, text);
  first = rank == Rank::kUnsupported ? unsupported_error(std::move(name), message)
                                     : validation_error(std::move(name), message);
}

size_t FieldReader::mark() {
  json_.peek();
  return json_.position();
}

// Whether a value of this kind comes next; null counts as absent and is consumed.
bool FieldReader::expect(const Path& path, json::Kind kind) {
  if (ended()) {
    return false;
  }
  const json::Kind found = json_.peek();
  if (found == kind) {
    return true;
  }
  if (found == json::Kind::kNull) {
    json_.read_null();
  } else {
    type_error(path, describe(kind));
  }
  return false;
}

std::optional<bool> FieldReader::boolean(const Path& path) {
  bool value = false;
  if (!expect(path, json::Kind::kBool) || !json_.read_bool(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<double> FieldReader::number(const Path& path, Range range) {
  std::string_view spelling;
  if (!expect(path, json::Kind::kNumber) || !json_.read_number(spelling)) {
    return std::nullopt;
  }
  double value = 0;
  const std::errc outcome = parse(spelling, value);
  // A number too small for a double is as good as zero; one too large is out of any range.
  const bool tiny = spelling.contains("e-") || spelling.contains("E-");
  const bool huge = outcome == std::errc::result_out_of_range && !tiny;
  if (huge || !range.contains(value)) {
    violation(path, range_text(range));
    return std::nullopt;
  }
  return value;
}

std::optional<float> FieldReader::number_f32(const Path& path, Range range) {
  const std::optional<double> wide = number(path, range);
  if (!wide) {
    return std::nullopt;
  }
  const auto value = static_cast<float>(*wide);
  if (!range.contains(value)) {
    violation(path, range_text(range));
    return std::nullopt;
  }
  return value;
}

std::optional<std::string_view> FieldReader::integer_spelling(const Path& path) {
  std::string_view spelling;
  if (!expect(path, json::Kind::kNumber)) {
    return std::nullopt;
  }
  if (!json_.read_number(spelling)) {
    return std::nullopt;
  }
  if (spelling.find_first_of(".eE") != std::string_view::npos) {
    violation(path, "must be a whole number");
    return std::nullopt;
  }
  return spelling;
}

std::optional<int64_t> FieldReader::signed_integer(const Path& path, int64_t low, int64_t high) {
  const auto spelling = integer_spelling(path);
  if (!spelling) {
    return std::nullopt;
  }
  int64_t value = 0;
  if (parse(*spelling, value) != std::errc() || value < low || value > high) {
    violation(path, fmt::format("must be from {} to {}", low, high));
    return std::nullopt;
  }
  return value;
}

std::optional<uint64_t> FieldReader::unsigned_integer(const Path& path, uint64_t low,
                                                      uint64_t high) {
  const auto spelling = integer_spelling(path);
  if (!spelling) {
    return std::nullopt;
  }
  uint64_t value = 0;
  if (parse(*spelling, value) != std::errc() || value < low || value > high) {
    violation(path, fmt::format("must be from {} to {}", low, high));
    return std::nullopt;
  }
  return value;
}

std::optional<std::string_view> FieldReader::string(const Path& path, Blank blank) {
  std::string_view value;
  if (!expect(path, json::Kind::kString) || !json_.read_string(value, storage_)) {
    return std::nullopt;
  }
  if (blank == Blank::kRefused && is_blank(value)) {
    violation(path, "must not be blank");
    return std::nullopt;
  }
  return value;
}

std::optional<std::string_view> FieldReader::any(const Path& path) {
  if (peek() == json::Kind::kNull) {
    json_.read_null();
    return std::nullopt;
  }
  if (peek() == json::Kind::kInvalid) {
    type_error(path, "a value");
    return std::nullopt;
  }
  std::string_view text;
  if (!json_.skip(text)) {
    return std::nullopt;
  }
  return text;
}

std::optional<std::string_view> FieldReader::raw(const Path& path, json::Kind kind) {
  std::string_view text;
  if (!expect(path, kind) || !json_.skip(text)) {
    return std::nullopt;
  }
  return text;
}

std::optional<std::vector<TokenId>> FieldReader::token_ids(const Path& path) {
  std::vector<TokenId> ids;
  const bool present = array(path, [&](size_t, const Path& element) {
    if (peek() != json::Kind::kNumber) {
      type_error(element, "a token id");
      return;
    }
    if (const auto id = integer<TokenId>(element, 0, std::numeric_limits<TokenId>::max())) {
      ids.push_back(*id);
    }
  });
  return present ? std::optional(std::move(ids)) : std::nullopt;
}

std::optional<std::vector<std::string>> FieldReader::strings(const Path& path) {
  std::vector<std::string> values;
  const bool present = array(path, [&](size_t, const Path& element) {
    if (peek() != json::Kind::kString) {
      type_error(element, "a string");
      return;
    }
    if (const auto text = string(element)) {
      values.emplace_back(*text);
    }
  });
  return present ? std::optional(std::move(values)) : std::nullopt;
}

ApiStatus FieldReader::finish() {
  if (type_error_) {
    return std::move(*type_error_);
  }
  if (!json_.finish()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("malformed JSON at byte {}: {}", json_.position(), json_.error()));
  }
  return {};
}

ApiStatus FieldReader::verdict() {
  for (std::optional<ApiError>& violation : violations_) {
    if (violation) {
      return std::move(*violation);
    }
  }
  return {};
}

}  // namespace stator::api
