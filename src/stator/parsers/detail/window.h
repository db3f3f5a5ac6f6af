// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stator::parsers {

/// Where a special token stands in held text.
struct TokenSpan {
  uint32_t offset = 0;
  uint32_t length_bytes = 0;
};

/// The undecided text of one choice: what was held and what just arrived. Machines look at `rest`,
/// decide, and `consume`; what they leave is held and shown again, with more behind it. A decision
/// must not depend on where the text ends unless `ending`: that is all it takes for results to be
/// the same however the stream was cut.
class Window {
 public:
  enum class Ending : uint8_t { kNo, kYes, kByItself };

  Window(std::string_view text, std::span<const TokenSpan> tokens, Ending ending)
      : text_(text), tokens_(tokens), ending_(ending) {}

  std::string_view rest() const { return {text_.data() + at_, text_.size() - at_}; }
  bool empty() const { return at_ == text_.size(); }
  /// No more text will come.
  bool ending() const { return ending_ != Ending::kNo; }
  /// No more text will come, and the model meant to end here: it was not cut off.
  bool ending_by_itself() const { return ending_ == Ending::kByItself; }
  size_t consumed() const { return at_; }

  void consume(size_t bytes) { at_ += bytes; }
  /// The same, as if only `bytes` of the rest had arrived.
  Window shortened(size_t bytes) const {
    Window window(text_.substr(0, at_ + bytes), tokens_, Ending::kNo);
    window.at_ = at_;
    return window;
  }
  /// What has been consumed since `consumed()` was `from`.
  std::string_view consumed_since(size_t from) const { return text_.substr(from, at_ - from); }

  /// Whether the bytes [offset, offset + length) of `rest` are exactly one special token.
  bool is_token(size_t offset, size_t length_bytes) const {
    return std::ranges::any_of(tokens_, [&](const TokenSpan& token) {
      return token.offset == at_ + offset && token.length_bytes == length_bytes;
    });
  }

 private:
  std::string_view text_;
  std::span<const TokenSpan> tokens_;
  size_t at_ = 0;
  Ending ending_;
};

/// White space as the formats know it.
constexpr bool is_space(char c) {
  if (static_cast<unsigned char>(c) > ' ') {  // one comparison for nearly all
    return false;
  }
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}
/// White space that is held until what follows it is known; a longer run decides by itself. Keeps
/// the time linear.
inline constexpr size_t kMaxHeldSpaceBytes = 4096;
/// Number of leading white space bytes.
constexpr size_t leading_space(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && is_space(text[count])) {
    ++count;
  }
  return count;
}
constexpr std::string_view trim(std::string_view text) {
  text.remove_prefix(leading_space(text));
  while (!text.empty() && is_space(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

}  // namespace stator::parsers
