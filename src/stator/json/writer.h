// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace stator::json {

/// Appends `text` as a JSON string with quotes. The result is always valid UTF-8: broken bytes
/// become U+FFFD, one per maximal subpart (WHATWG). Besides what JSON demands, U+0085, U+2028 and
/// U+2029 are escaped, since some clients split event streams there. 16 bytes per step where
/// nothing needs escaping.
void append_string(std::string& out, std::string_view text);
/// The same without quotes, for a string written in pieces.
void append_escaped(std::string& out, std::string_view text);

/// Writes JSON straight into a string: commas are its business, structure is the caller's.
///
///   Writer json(out);
///   json.begin_object().key("index").value(0).key("text").value(text).end_object();
///
/// No allocation beyond the output string. Keys must be plain ASCII literals (not escaped).
class Writer {
 public:
  /// `out` must outlive the writer; appends only.
  explicit Writer(std::string& out) : out_(out) {}

  Writer& begin_object() { return open('{'); }
  Writer& end_object() { return close('}'); }
  Writer& begin_array() { return open('['); }
  Writer& end_array() { return close(']'); }

  Writer& key(std::string_view plain_ascii) {
    separate();
    out_.push_back('"');
    out_.append(plain_ascii);
    out_.append("\":", 2);
    comma_ = false;
    return *this;
  }
  /// A key from outside: escaped.
  Writer& key_escaped(std::string_view text);

  Writer& value(std::string_view text) {
    separate();
    append_string(out_, text);
    return *this;
  }
  Writer& value(const char* text) { return value(std::string_view(text)); }
  Writer& value(std::same_as<bool> auto flag) { return raw(flag ? "true" : "false"); }
  Writer& value(std::signed_integral auto number) { return integer(static_cast<int64_t>(number)); }
  template <std::unsigned_integral Integer>
    requires(!std::same_as<Integer, bool>)
  Writer& value(Integer number) {
    return unsigned_integer(static_cast<uint64_t>(number));
  }
  /// Shortest text that reads back to the same number; NaN and infinities become null.
  Writer& value(double number);
  Writer& value(float number);
  Writer& null() { return raw("null"); }
  /// Ready-made JSON.
  Writer& raw(std::string_view json) {
    separate();
    out_.append(json);
    return *this;
  }

 private:
  Writer& open(char bracket) {
    separate();
    out_.push_back(bracket);
    comma_ = false;
    return *this;
  }
  Writer& close(char bracket) {
    out_.push_back(bracket);
    comma_ = true;
    return *this;
  }
  void separate() {
    if (comma_) {
      out_.push_back(',');
    }
    comma_ = true;
  }
  Writer& integer(int64_t number);
  Writer& unsigned_integer(uint64_t number);

  std::string& out_;
  bool comma_ = false;  // whether the next key or value needs a comma in front
};

}  // namespace stator::json
