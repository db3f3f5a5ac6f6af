// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/api/api_error.h"
#include "stator/core/ids.h"
#include "stator/json/cursor.h"

namespace stator::api {

/// Where in the request a value stands: a chain of stack objects, spelled out only for an error.
///   Path message(messages, 2);  Path content(message, "content");  →  "messages[2].content"
class Path {
 public:
  explicit Path(std::string_view name) : name_(name) {}
  Path(const Path& parent, std::string_view name) : parent_(&parent), name_(name) {}
  Path(const Path& parent, size_t index) : parent_(&parent), index_(index) {}
  std::string text() const;

 private:
  static constexpr size_t kNoIndex = std::numeric_limits<size_t>::max();
  const Path* parent_ = nullptr;
  std::string_view name_;
  size_t index_ = kNoIndex;
};

/// An interval of numbers; `open_low` excludes the lower end.
struct Range {
  double low = 0;
  double high = 0;
  bool open_low = false;

  /// Not for NaN and infinities, whatever the ends.
  bool contains(double value) const {
    return std::isfinite(value) && (open_low ? value > low : value >= low) && value <= high;
  }
};

enum class Blank : uint8_t { kAllowed, kRefused };

/// Which of several broken rules is reported: the first of the lowest rank.
enum class Rank : uint8_t { kUnsupported, kRequired, kStreamOptions, kRule };
inline constexpr size_t kRankCount = 4;

/// Typed access to the values of a request. Errors stick: after the first type or syntax error
/// every call returns nothing, and loops end; the caller looks once, at the end, with `verdict`.
/// Broken rules are remembered and reading goes on, because the protocol ranks them: a field that
/// is not supported (501) wins over a value out of range (400), whichever comes first in the text.
/// In all readers null counts as absent and gives no value.
class FieldReader {
 public:
  FieldReader(std::string_view text, uint32_t depth_max)
      : depth_max_(depth_max), json_(text, depth_max) {}

  std::optional<bool> boolean(const Path& path);
  std::optional<double> number(const Path& path, Range range);
  /// The same as a float, whose value is in the range, too: 1e-50 is above 0 and becomes 0.
  std::optional<float> number_f32(const Path& path, Range range);
  /// A whole number without fraction or exponent.
  template <std::integral Integer>
  std::optional<Integer> integer(const Path& path, Integer low, Integer high) {
    if constexpr (std::same_as<Integer, uint64_t>) {
      return unsigned_integer(path, low, high);
    } else {
      const auto value = signed_integer(path, int64_t{low}, int64_t{high});
      return value ? std::optional<Integer>(static_cast<Integer>(*value)) : std::nullopt;
    }
  }
  /// Valid until the next call.
  std::optional<std::string_view> string(const Path& path, Blank blank = Blank::kAllowed);
  /// The value's own text, of whatever kind (but null).
  std::optional<std::string_view> any(const Path& path);
  std::optional<std::string_view> raw_object(const Path& path) {
    return raw(path, json::Kind::kObject);
  }
  std::optional<std::string_view> raw_array(const Path& path) {
    return raw(path, json::Kind::kArray);
  }
  /// The string as it is spelled, with its quotes.
  std::optional<std::string_view> raw_string(const Path& path) {
    return raw(path, json::Kind::kString);
  }
  /// A string that nobody reads: validated, not decoded.
  bool has_string(const Path& path) { return raw(path, json::Kind::kString).has_value(); }
  /// Token ids: whole numbers from 0 to 2^32 - 1.
  std::optional<std::vector<TokenId>> token_ids(const Path& path);
  std::optional<std::vector<std::string>> strings(const Path& path);

  /// Calls `member(key, path)` for each; it must read or skip the value. Returns whether there was
  /// an object.
  template <typename Member>
  bool object(const Path& path, Member&& member) {
    if (!expect(path, json::Kind::kObject) || !json_.enter_object()) {
      return false;
    }
    std::string_view key;
    std::string storage;
    while (json_.next_key(key, storage)) {
      member(key, Path(path, key));
      if (ended()) {
        return false;
      }
    }
    return !json_.failed();
  }
  /// The same for an array: `element(index, path)`.
  template <typename Element>
  bool array(const Path& path, Element&& element) {
    if (!expect(path, json::Kind::kArray) || !json_.enter_array()) {
      return false;
    }
    for (size_t index = 0; json_.next_element(); ++index) {
      element(index, Path(path, index));
      if (ended()) {
        return false;
      }
    }
    return !json_.failed();
  }

  json::Kind peek() { return ended() ? json::Kind::kInvalid : json_.peek(); }
  void skip() {
    if (!ended()) {
      json_.skip();
    }
  }

  /// Runs `read()` on `text`, a value that was passed over before, as if it stood here.
  template <typename Read>
  void nested(std::string_view text, Read&& read) {
    const json::Cursor outer = std::exchange(json_, json::Cursor(text, depth_max_));
    read();
    json_ = outer;
  }

  /// "<path> must be <expected>, not <what stands there>". Ends reading.
  void type_error(const Path& path, std::string_view expected);
  /// "<path> <text>": a rule of the protocol is broken. Rank::kUnsupported gives 501, others 400.
  void violation(const Path& path, std::string_view text, Rank rank = Rank::kRule);
  /// What another reader found wrong with a part of this text, as if it had been found here.
  void adopt(ApiError error);
  void unsupported(const Path& path, std::string_view text) {
    violation(path, text, Rank::kUnsupported);
  }

  /// Where the next value begins, and the text from there to where reading stands now.
  size_t mark();
  std::string_view since(size_t mark) const { return json_.text_since(mark); }

  /// Reading has ended: nothing more comes.
  bool failed() const { return ended(); }
  bool syntax_failed() const { return json_.failed() && !type_error_; }
  /// Call once the root value is read: the type or syntax error, or that something follows the
  /// value.
  ApiStatus finish();
  /// The remembered violation of the highest rank.
  ApiStatus verdict();

 private:
  bool ended() const { return type_error_.has_value() || json_.failed(); }
  bool expect(const Path& path, json::Kind kind);
  std::optional<std::string_view> raw(const Path& path, json::Kind kind);
  std::optional<std::string_view> integer_spelling(const Path& path);
  std::optional<int64_t> signed_integer(const Path& path, int64_t low, int64_t high);
  std::optional<uint64_t> unsigned_integer(const Path& path, uint64_t low, uint64_t high);

  uint32_t depth_max_;
  json::Cursor json_;
  std::string storage_;
  std::optional<ApiError> type_error_;
  std::array<std::optional<ApiError>, kRankCount> violations_;
};

}  // namespace stator::api
