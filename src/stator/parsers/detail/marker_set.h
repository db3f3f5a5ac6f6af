// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/parsers/detail/few_bytes.h"
#include "stator/parsers/detail/window.h"
#include "stator/parsers/family_spec.h"

namespace stator::parsers {

/// Finds the first of a few markers in streamed text. At one place the longest wins. Immutable
/// once filled. Plain text costs a table look-up per byte, less where all markers begin alike; at a
/// byte that begins a marker, the handful of markers is compared.
class MarkerSet {
 public:
  static constexpr int kNone = -1;

  /// What was found in `Window::rest`. Bytes before `offset` belong to no marker. Without a marker,
  /// what stands from `offset` on may still become one and must be held (nothing if it is the end).
  struct Hit {
    size_t offset = 0;
    size_t length_bytes = 0;
    int role = kNone;
    explicit operator bool() const { return role != kNone; }
  };

  /// `bound`: markers that count only as one special token.
  explicit MarkerSet(std::span<const std::string> bound = {})
      : bound_(bound.begin(), bound.end()) {}

  /// `role` is what a hit tells; several markers may share one. Equal texts: the first added
  /// counts. Empty markers are ignored.
  void add(const Markers& markers, int role);
  void add(const Marker& marker, int role);

  /// From byte `from` of the rest on.
  Hit find(const Window& window, size_t from = 0) const;
  /// Whether one stands exactly at byte `at` of the rest.
  enum class Match : uint8_t { kNo, kMaybe, kYes };
  Match match_at(const Window& window, size_t at, Hit& hit) const {
    const std::string_view rest = window.rest();
    if (at < rest.size() && !may_begin(rest[at])) {  // most places, without a call
      hit = {.offset = at};
      return Match::kNo;
    }
    return compare_at(window, at, hit);
  }

  /// The stream ends inside what began like a marker at byte `at` of the rest.
  bool is_cut_off(const Window& window, size_t at) const;

  /// Inside calls half a marker at the end of the stream is a cut one, not text: still "maybe".
  void hold_at_end() { holds_at_end_ = true; }

  /// Whether some marker begins with `c`: saves `match_at` where it is asked for every byte.
  bool may_begin(char c) const { return starts_[static_cast<unsigned char>(c)]; }
  bool may_begin_in(std::string_view text) const { return find_start(text, 0) < text.size(); }

  bool empty() const { return entries_.empty(); }

 private:
  size_t find_start(std::string_view text, size_t at) const;
  Match compare_at(const Window& window, size_t at, Hit& hit) const;

  /// The first bytes of a text, as many as fit in a register: `known` has ones where there are any.
  struct Head {
    uint64_t bytes = 0;
    uint64_t known = 0;

    static Head of(std::string_view text) {
      if (text.size() < sizeof(bytes)) {
        return of_short(text);
      }
      Head head{.known = ~uint64_t{0}};
      std::memcpy(&head.bytes, text.data(), sizeof(head.bytes));
      return head;
    }
    static Head of_short(std::string_view text);
    bool may_equal(const Head& other) const {
      return ((bytes ^ other.bytes) & known & other.known) == 0;
    }
  };
  struct Entry {
    Head head;
    std::string text;
    int role;
    bool is_bound;
  };

  std::vector<std::string> bound_;
  std::vector<Entry> entries_;  // from the longest to the shortest
  bool holds_at_end_ = false;
  std::array<bool, 256> starts_{};
  FewBytes first_bytes_;  // those of `starts_`, as long as they are few
};

/// Consumes the marker of `role` where it stands next, behind white space perhaps, or what is left
/// of it at the end of the stream; nothing if something else comes. False: more text decides.
bool take_closer(Window& in, const MarkerSet& markers, int role);

/// The answer ended by itself between the parameters of a call: nothing is left, or half a marker
/// that may close the call and cannot become one of `openers`.
bool lacks_only_closer(const Window& in, const MarkerSet& markers, const MarkerSet& openers);

/// Consumes everything up to the next marker, and that one too if it has `role`. False: there is
/// none so far, and more text may come.
bool skip_past_closer(Window& in, const MarkerSet& markers, int role);

}  // namespace stator::parsers
