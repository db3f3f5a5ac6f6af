// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stator::chat_template::detail {

// Python's string behaviour over UTF-8: positions count code points. Malformed bytes count as one
// code point each, so nothing here can fail or read out of bounds.

/// Decodes the code point at byte `at` and moves `at` past it.
char32_t next_code_point(std::string_view text, size_t& at);

/// len(text).
size_t count_code_points(std::string_view text);
/// Byte where code point number `index` starts; text.size() when there are fewer.
size_t byte_offset(std::string_view text, size_t index);

/// Byte where `wanted` first stands in `text` from byte `from` on, or npos, like string_view::find,
/// but in linear time whatever the two texts repeat.
size_t find_text(std::string_view text, std::string_view wanted, size_t from = 0);
/// The same for the last place. Copies both texts if `wanted` is long.
size_t find_last_text(std::string_view text, std::string_view wanted);

/// str.isspace() for one code point.
bool is_space(char32_t point);
/// What repr() shows as is.
bool is_printable(char32_t point);
bool is_alpha(char32_t point);
bool is_decimal(char32_t point);
/// The decimal digits of all scripts as 0 to 9, as int() and float() read them.
std::string with_ascii_digits(std::string_view text);
bool is_digit(char32_t point);
bool is_numeric(char32_t point);
bool is_alphanumeric(char32_t point);
/// \w of Python's regular expressions.
bool is_word(char32_t point);
bool is_upper(char32_t point);
bool is_lower(char32_t point);

enum class Side : uint8_t { kLeft, kRight, kBoth };
/// str.strip / lstrip / rstrip without argument.
std::string_view strip(std::string_view text, Side side);
/// The same with a set of code points to remove.
std::string_view strip(std::string_view text, std::string_view characters, Side side);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);
std::string to_capitalized(std::string_view text);
std::string to_swapped_case(std::string_view text);
std::string to_folded_case(std::string_view text);
bool is_title_letter(char32_t point);

}  // namespace stator::chat_template::detail
