// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stator::parsers {

/// Deepest nesting of a value that is forwarded; deeper ones are malformed.
inline constexpr uint32_t kMaxJsonDepth = 512;

/// Reads one JSON value as it streams by, and writes it through unchanged: key order, spacing,
/// number spelling and escapes stay as they are. What models get wrong inside an otherwise sound
/// value is spelled as JSON: raw control bytes in strings, escapes that do not exist, and Python's
/// True, False and None. One byte at a time in effect, so cutting the input anywhere changes
/// nothing; what stays as it is is copied in runs as long as the input allows.
///
/// J1: `out` so far is a prefix of a JSON text whenever the input so far is (after the repairs).
/// J2: after kDone or kMalformed nothing more is consumed.
class JsonStream {
 public:
  enum class Status : uint8_t { kMore, kDone, kMalformed };

  /// Consumes from `text`, appends to `out`, and returns how many bytes were consumed. White space
  /// before the value is consumed and not written. The byte that shows a top-level number or
  /// word to be over is not consumed; nor is one that makes the value malformed.
  size_t feed(std::string_view text, std::string& out) { return read(text, &out); }
  /// The same for a value that nobody needs: nothing is written.
  size_t skip(std::string_view text) { return read(text, nullptr); }
  /// No more text will come: a top-level number may be over now.
  void end(std::string& out);

  Status status() const { return status_; }
  bool repaired() const { return repaired_; }

 private:
  enum class Expect : uint8_t {
    kValue,
    kFirstElement,  // a value or ]
    kFirstKey,      // a key or }
    kKey,
    kColon,
    kNext,  // , or the closing bracket
    kString,
    kEscape,
    kHex,
    kNumber,
    kWord,
  };
  enum class Number : uint8_t { kSign, kZero, kInteger, kDot, kFraction, kE, kESign, kExponent };

  /// The input of one `read`. The bytes [from, at) go out as they are.
  struct Run {
    std::string_view text;
    std::string* out;  ///< null: nothing is written
    size_t from = 0;
    size_t at = 0;

    /// Writes what is to go out, and leaves out the `bytes` behind it.
    void leave_out(size_t bytes) {
      write(text.substr(from, at - from));
      at += bytes;
      from = at;
    }
    void write(std::string_view bytes) const {
      if (out != nullptr) {
        out->append(bytes);
      }
    }
  };

  size_t read(std::string_view text, std::string* out);
  void string(Run& run);
  void escape(Run& run);
  void hex(Run& run);
  void number(Run& run);
  void word(Run& run);
  void structure(Run& run);
  void value_begins(Run& run);
  void word_begins(Run& run);
  bool closes(char c) const;
  bool number_goes_on(char c);
  bool number_may_end() const;
  std::string_view finish_word();
  bool open(bool is_object);
  void value_ends();
  void fail() { status_ = Status::kMalformed; }
  bool in_object() const { return (stack_[(depth_ - 1) / 64] >> ((depth_ - 1) % 64) & 1) != 0; }

  Status status_ = Status::kMore;
  Expect expect_ = Expect::kValue;
  Number number_ = Number::kSign;
  bool string_is_key_ = false;
  bool repaired_ = false;
  uint8_t hex_left_ = 0;
  uint8_t word_length_ = 0;
  uint32_t depth_ = 0;
  std::array<char, 8> word_{};
  std::array<uint64_t, kMaxJsonDepth / 64> stack_{};  // bit set: object
};

/// What stands at the front of `text`, which begins with a brace: an object as far as its first key
/// or its end shows, or something else.
enum class ObjectStart : uint8_t { kObject, kOther, kUndecided };
ObjectStart object_start(std::string_view text);

/// Whether `text`, without surrounding white space, is exactly one JSON value.
bool is_json(std::string_view text);

/// Appends `text` as a JSON string with its quotes. Bytes from 0x80 on stay as they are.
void append_json_string(std::string& out, std::string_view text);

/// The same without the quotes.
void append_json_string_body(std::string& out, std::string_view text);

/// Appends what the body of a JSON string (without its quotes) stands for. Lone surrogates become
/// U+FFFD. False if an escape is broken; `out` then has what came before.
bool append_unescaped(std::string& out, std::string_view body);

/// Length of the escape at the front of a string's body, a pair of surrogates being one: 0 if it
/// is not all there yet. A broken escape has length 1.
size_t escape_length(std::string_view body);

}  // namespace stator::parsers
