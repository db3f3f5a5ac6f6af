// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/marker_set.h"

#include <algorithm>
#include <cstring>

#include "stator/parsers/detail/contains.h"

namespace stator::parsers {

void MarkerSet::add(const Markers& markers, int role) {
  for (const Marker& marker : markers) {
    add(marker, role);
  }
}

void MarkerSet::add(const Marker& marker, int role) {
  if (marker.text.empty() || contains(entries_, marker.text, &Entry::text)) {
    return;
  }
  if (!may_begin(marker.text[0])) {
    starts_[static_cast<unsigned char>(marker.text[0])] = true;
    first_bytes_ += marker.text[0];
  }
  entries_.push_back({.text = marker.text,
                      .role = role,
                      .is_bound = marker.special && contains(bound_, marker.text)});
}

MarkerSet::Match MarkerSet::compare_at(const Window& window, size_t at, Hit& hit) const {
  const std::string_view text = window.rest().substr(at);
  const bool waits = holds_at_end_ || !window.ending();
  size_t longest_maybe = 0;
  hit = {.offset = at};
  if (text.empty()) {
    return !waits || entries_.empty() ? Match::kNo : Match::kMaybe;
  }
  for (const Entry& entry : entries_) {
    const std::string_view marker = entry.text;
    const size_t common = std::min(marker.size(), text.size());
    if (marker[0] != text[0] || marker[common - 1] != text[common - 1] ||
        marker[common / 2] != text[common / 2]) {
      continue;  // most candidates end at one byte, without a call
    }
    if (common > 3 && std::memcmp(marker.data(), text.data(), common) != 0) {
      continue;  // of three bytes all have been compared
    }
    if (common == marker.size()) {
      if (common > hit.length_bytes && (!entry.is_bound || window.is_token(at, common))) {
        hit.length_bytes = common;
        hit.role = entry.role;
      }
    } else if (!entry.is_bound && waits) {
      // A special token arrives whole, so only markers made of letters can be half there.
      longest_maybe = std::max(longest_maybe, marker.size());
    }
  }
  if (longest_maybe > hit.length_bytes) {
    hit = {.offset = at};
    return Match::kMaybe;
  }
  return hit ? Match::kYes : Match::kNo;
}

bool MarkerSet::is_cut_off(const Window& window, size_t at) const {
  const std::string_view text = window.rest().substr(at);
  return window.ending() && !text.empty() && std::ranges::any_of(entries_, [&](const Entry& entry) {
           return !entry.is_bound && std::string_view(entry.text).starts_with(text);
         });
}

/// The next byte at or behind `at` that begins a marker, or the text's end.
size_t MarkerSet::find_start(std::string_view text, size_t at) const {
  if (first_bytes_.size() == 1) {
    return std::min(text.find(first_bytes_[0], at), text.size());
  }
  while (at < text.size() && !may_begin(text[at])) {
    ++at;
  }
  return at;
}

MarkerSet::Hit MarkerSet::find(const Window& window, size_t from) const {
  const std::string_view text = window.rest();
  Hit hit;
  for (size_t at = find_start(text, from); at < text.size(); at = find_start(text, at + 1)) {
    if (compare_at(window, at, hit) != Match::kNo) {
      return hit;
    }
  }
  return {.offset = text.size()};
}

bool take_closer(Window& in, const MarkerSet& markers, int role) {
  const size_t space = leading_space(in.rest());
  if (space > kMaxHeldSpaceBytes) {
    return true;
  }
  if (space == in.rest().size()) {
    return in.ending();
  }
  MarkerSet::Hit hit;
  const auto match = markers.match_at(in, space, hit);
  if (match == MarkerSet::Match::kMaybe) {
    return false;
  }
  if (match == MarkerSet::Match::kYes && hit.role == role) {
    in.consume(space + hit.length_bytes);
  } else if (markers.is_cut_off(in, space)) {
    in.consume(in.rest().size());
  }
  return true;
}

bool skip_past_closer(Window& in, const MarkerSet& markers, int role) {
  const MarkerSet::Hit hit = markers.find(in);
  in.consume(hit.offset);
  if (!hit) {
    return in.ending();
  }
  in.consume(hit.role == role ? hit.length_bytes : 0);
  return true;
}

}  // namespace stator::parsers
