// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stator::json {

enum class Kind : uint8_t { kObject, kArray, kString, kNumber, kBool, kNull, kInvalid };

/// "an object", "a string", …: for messages.
std::string_view describe(Kind kind);

/// Reads JSON text once, front to back, and can say where every value stands in it. Strict RFC
/// 8259, except that lone surrogate escapes are let through (decoded as U+FFFD).
///
/// Why not simdjson: we hand slices on verbatim (key order, number spelling, 30-digit integers),
/// need exact error positions and a depth limit, and must see every byte validated even in parts
/// nobody reads. simdjson's DOM loses spelling and refuses big integers for the whole document;
/// its On-Demand API does not validate what it skips and has no run-time dispatch. With 16-byte
/// string scans, long prompts take no longer than the DOM alone would (bench/api_bench.cc). The
/// text must be valid UTF-8 (detail/utf8.h, which does use simdjson): bytes from 0x80 are not
/// looked at.
///
///   Cursor json(text, 128);
///   json.enter_object();
///   while (json.next_key(key, storage)) { … read or skip exactly one value … }
///   if (!json.finish()) report(json.error(), json.position());
///
/// C1  After the first error every call returns false and nothing moves.
/// C2  next_key and next_element return false at the closing bracket, which they consume.
/// C3  depth_ ≤ depth_max at all times; recursion is bounded by it.
class Cursor {
 public:
  /// `text` must outlive the cursor and the views it gives out.
  Cursor(std::string_view text, uint32_t depth_max) : text_(text), depth_max_(depth_max) {}

  /// Kind of the value that comes next, kInvalid if none can start here. Skips white space.
  Kind peek();

  bool enter_object();
  /// `key` points into the text, or into `storage` if it had escapes.
  bool next_key(std::string_view& key, std::string& storage);
  bool enter_array();
  bool next_element();

  /// Decodes a string. `value` points into the text, or into `storage` if it had escapes.
  bool read_string(std::string_view& value, std::string& storage);
  /// The number as spelled.
  bool read_number(std::string_view& spelling);
  bool read_bool(bool& value);
  bool read_null();
  /// Validates any value and passes over it; `raw` is its text without surrounding space.
  bool skip(std::string_view& raw);
  bool skip();

  /// True if nothing but white space is left and nothing went wrong.
  bool finish();

  bool failed() const { return !error_.empty(); }
  /// What is wrong, empty if nothing.
  std::string_view error() const { return error_; }
  /// Byte offset of the next unread byte; after an error, of the offending one.
  size_t position() const { return at_; }
  /// What has been read from `begin` on.
  std::string_view text_since(size_t begin) const { return text_.substr(begin, at_ - begin); }

 private:
  bool fail(std::string_view what);
  void skip_space();
  bool open(char bracket, std::string_view what);
  bool close_or_separate(char bracket, bool& more);
  bool scan_string(std::string_view& body, bool& escaped);
  bool scan_escape();
  bool scan_number();
  bool scan_digits();
  bool literal(std::string_view word);
  char current() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  std::string_view text_;
  size_t at_ = 0;
  uint32_t depth_ = 0;
  uint32_t depth_max_;
  bool first_ = false;  // no member of the innermost container has been read yet
  std::string_view error_;
};

/// Decodes the escapes of a validated string body into `out` (replaced). Lone surrogates → U+FFFD.
void decode_string(std::string_view body, std::string& out);

}  // namespace stator::json
