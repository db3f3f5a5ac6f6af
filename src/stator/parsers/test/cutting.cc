// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/test/cutting.h"

#include <algorithm>

#include "stator/core/assert.h"

namespace stator::parsers {

std::vector<std::string> all_markers(const ParserOptions& options) {
  std::vector<std::string> texts;
  const auto add = [&texts](const Markers& markers) {
    for (const Marker& marker : markers) {
      texts.push_back(marker.text);
    }
  };
  for (const auto& [key, markers] : options.tools_family->markers) {
    add(markers);
  }
  const ReasoningSpec& reasoning = *options.reasoning_family;
  for (const Markers* markers :
       {&reasoning.open, &reasoning.close, &reasoning.hand_over, &reasoning.framing}) {
    add(*markers);
  }
  return texts;
}

std::vector<Piece> cut_evenly(std::string_view text, const ParserOptions& options,
                              size_t piece_bytes) {
  std::vector<Piece> pieces;
  size_t begin = 0;
  const auto add_plain = [&](size_t end) {
    for (; begin < end; begin += piece_bytes) {
      pieces.push_back({.text = text.substr(begin, std::min(piece_bytes, end - begin))});
    }
    begin = end;
  };
  for (size_t at = 0; at < text.size() && !options.special_markers.empty();) {
    size_t longest = 0;
    for (const std::string& marker : options.special_markers) {
      longest = text.substr(at).starts_with(marker) ? std::max(longest, marker.size()) : longest;
    }
    if (longest > 0) {
      add_plain(at);
      pieces.push_back({.text = text.substr(at, longest), .special = true});
      begin = at + longest;
    }
    at += std::max(longest, size_t{1});
  }
  add_plain(text.size());
  return pieces;
}

EventList parse_stream(const OutputParser& parser, const std::vector<Piece>& pieces) {
  auto state = parser.make_state();
  EventList events;
  for (const Piece& piece : pieces) {
    parser.feed(state, std::span(&piece, 1), events);
  }
  parser.finish(state, StreamEnd::kLength, events);
  STATOR_ASSERT(state.held_bytes() == 0, "nothing is held when the stream is over");
  return events;
}

std::string spell_events(const EventList& events) {
  std::string spelling;
  std::string recoveries;
  EventKind last = EventKind::kRecovered;
  for (const Event& event : events.all()) {
    if (event.kind == EventKind::kRecovered) {
      recoveries += static_cast<char>('a' + static_cast<int>(event.recovery));
      continue;
    }
    const bool goes_on = event.kind == last && event.kind != EventKind::kCallEnd;
    spelling += goes_on ? "" : std::string("\x01") + static_cast<char>('0' + int(event.kind));
    spelling += events.call_id(event);
    spelling += events.bytes(event);
    spelling += event.complete ? "" : "\x02";
    last = event.kind;
  }
  std::ranges::sort(recoveries);
  return spelling + "\x03" + recoveries;
}

}  // namespace stator::parsers
