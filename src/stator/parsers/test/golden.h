// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stator/parsers/final_message.h"
#include "stator/parsers/output_parser.h"

namespace stator::parsers {

/// One recorded output and what it means. Files: testdata/goldens/*.json, format in its README.
struct GoldenCase {
  std::string name;
  ParserOptions options;
  std::vector<Piece> pieces;       // views into `texts`
  std::vector<std::string> texts;  // moved as a whole: the strings stay where they are
  StreamEnd end = StreamEnd::kStop;
  FinalMessage message;
  bool checks_ids = false;  // the golden names the ids
  std::string finish;       // stop, length, tool_calls
  std::vector<std::string> recoveries;
};

/// What a run gave.
struct Parsed {
  FinalMessage message;
  std::string finish;
  std::vector<std::string> recoveries;
  std::string trace;  // the events, one per line, neighbours joined, without recoveries
};

std::vector<std::string> golden_files();
std::vector<GoldenCase> read_goldens(const std::string& path);

/// Parses `pieces`, each fed by itself.
Parsed parse_pieces(const ParserOptions& options, const std::vector<Piece>& pieces, StreamEnd end);
/// Cuts the ordinary pieces at the given offsets of the whole text; special tokens stay whole.
std::vector<Piece> cut(const std::vector<Piece>& pieces, const std::vector<size_t>& offsets);

/// For messages of failed tests.
std::string to_json(const Parsed& parsed);

}  // namespace stator::parsers
