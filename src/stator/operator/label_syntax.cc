// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/label_syntax.h"

#include <fmt/format.h>

#include <algorithm>

namespace stator::op {
namespace {

using json::Value;

constexpr size_t kNameMax = 63;
constexpr size_t kSubdomainMax = 253;
constexpr size_t kAnnotationBytesMax = size_t{256} << 10;

constexpr std::string_view kKeyRule =
    "a key is [prefix/]name: at most 63 letters, digits, '-', '_' and '.', with a letter or digit "
    "at both ends";

bool is_lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool is_letter_or_digit(char c) {
  return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z');
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameMax && is_letter_or_digit(text.front()) &&
         is_letter_or_digit(text.back()) && std::ranges::all_of(text, [](char c) {
           return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.';
         });
}

}  // namespace

bool is_dns_subdomain(std::string_view text) {
  return !text.empty() && text.size() <= kSubdomainMax && is_lower_or_digit(text.front()) &&
         is_lower_or_digit(text.back()) &&
         std::ranges::all_of(text,
                             [](char c) { return is_lower_or_digit(c) || c == '-' || c == '.'; }) &&
         text.find("..") == std::string_view::npos;
}

bool is_label_key(std::string_view text) {
  const size_t slash = text.find('/');
  return slash == std::string_view::npos
             ? is_name(text)
             : is_dns_subdomain(text.substr(0, slash)) && is_name(text.substr(slash + 1));
}

bool is_label_value(std::string_view text) {
  return text.empty() || is_name(text);
}

void check_labels(FieldCheck& check, const Value& parent, std::string_view path,
                  std::string_view key) {
  check.string_map(parent, path, key);
  for (const json::Member& label : parent.at(key).members()) {
    const std::string own = fmt::format("{}.{}[{}]", path, key, label.key);
    if (!is_label_key(label.key)) {
      check.invalid(own, Value(label.key), kKeyRule);
    } else if (!is_label_value(label.value.text())) {
      check.invalid(own, label.value,
                    "a value is at most 63 letters, digits, '-', '_' and '.', with a letter or "
                    "digit at both ends");
    }
  }
}

void check_annotation_map(FieldCheck& check, const Value& parent, std::string_view path,
                          std::string_view key) {
  check.string_map(parent, path, key);
  size_t bytes = 0;
  for (const json::Member& annotation : parent.at(key).members()) {
    bytes += annotation.key.size() + annotation.value.text().size();
    if (!is_label_key(annotation.key)) {
      check.invalid(fmt::format("{}.{}[{}]", path, key, annotation.key), Value(annotation.key),
                    kKeyRule);
    }
  }
  if (bytes > kAnnotationBytesMax) {
    check.invalid(fmt::format("{}.{}", path, key), Value(bytes),
                  fmt::format("{} bytes in all, at most {}", bytes, kAnnotationBytesMax));
  }
}

}  // namespace stator::op
