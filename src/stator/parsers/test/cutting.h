// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/parsers/output_parser.h"

namespace stator::parsers {

/// Every text that means something to a parser with `options`.
std::vector<std::string> all_markers(const ParserOptions& options);

/// `text` as a stream: special markers of `options` on their own, the rest in pieces of
/// `piece_bytes`. The pieces are views into `text`.
std::vector<Piece> cut_evenly(std::string_view text, const ParserOptions& options,
                              size_t piece_bytes);

/// The events of a stream that ends at its limit, as text: equal for equal meanings, however the
/// stream was cut. Survivals are counted, not placed: their order, and where between two pieces
/// they stand, say nothing.
std::string spell_events(const EventList& events);
EventList parse_stream(const OutputParser& parser, const std::vector<Piece>& pieces);

}  // namespace stator::parsers
