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
    first_bytes_.add(marker.text[0]);
  }
  const auto behind = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.text.size() < marker.text.size(); });
  entries_.insert(behind, {.head = Head::of(marker.text),
                           .text = marker.text,
                           .role = role,
                           .is_bound = marker.special && contains(bound_, marker.text)});
}

MarkerSet::Head MarkerSet::Head::of_short(std::string_view text) {
  Head head;
  for (size_t i = 0; i < text.size(); ++i) {
    head.bytes |= uint64_t{static_cast<unsigned char>(text[i])} << (8 * i);
    head.known |= uint64_t{0xFF} << (8 * i);
  }
  return head;
}

/// The longest stand first, so the first one that may be meant decides.
MarkerSet::Match MarkerSet::compare_at(const Window& window, size_t at, Hit& hit) const {
  const std::string_view rest = window.rest();
  const std::string_view text(rest.data() + at, rest.size() - at);
  const bool waits = holds_at_end_ || !window.ending();
  hit = {.offset = at};
  if (text.empty()) {
    return !waits || entries_.empty() ? Match::kNo : Match::kMaybe;
  }
  const Head head = Head::of(text);
  for (const Entry& entry : entries_) {
    if (!head.may_equal(entry.head)) {
      continue;  // most of them end here, without a call
    }
    const size_t common = std::min(entry.text.size(), text.size());
    if (common > sizeof(head.bytes) && std::memcmp(entry.text.data(), text.data(), common) != 0) {
      continue;
    }
    if (common == entry.text.size()) {
      if (!entry.is_bound || window.is_token(at, common)) {
        hit = {.offset = at, .length_bytes = common, .role = entry.role};
        return Match::kYes;
      }
    } else if (!entry.is_bound && waits) {
      return Match::kMaybe;  // a special token arrives whole: only letters can be half there
    }
  }
  return Match::kNo;
}

bool MarkerSet::is_cut_off(const Window& window, size_t at) const {
  const std::string_view text = window.rest().substr(at);
  return window.ending() && !text.empty() && std::ranges::any_of(entries_, [&](const Entry& entry) {
           return !entry.is_bound && std::string_view(entry.text).starts_with(text);
         });
}

/// The next byte at or behind `at` that begins a marker, or the text's end.
size_t MarkerSet::find_start(std::string_view text, size_t at) const {
  if (text.size() - at >= FewBytes::kBlock && first_bytes_.complete()) {
    return first_bytes_.find_in(text, at);
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

bool lacks_only_closer(const Window& in, const MarkerSet& markers, const MarkerSet& openers) {
  return in.ending_by_itself() &&
         (in.empty() || (markers.is_cut_off(in, 0) && !openers.is_cut_off(in, 0)));
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
