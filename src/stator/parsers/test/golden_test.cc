// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/test/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "stator/core/random.h"
#include "stator/json/value.h"

namespace stator::parsers {
namespace {

class Goldens : public testing::TestWithParam<std::string> {};

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::ranges::sort(names);
  return names;
}

size_t total_bytes(const GoldenCase& golden) {
  size_t bytes = 0;
  for (const Piece& piece : golden.pieces) {
    bytes += piece.text.size();
  }
  return bytes;
}

TEST_P(Goldens, GiveTheRecordedMessage) {
  for (const GoldenCase& golden : read_goldens(GetParam())) {
    SCOPED_TRACE(golden.name);

    Parsed parsed = parse_pieces(golden.options, golden.pieces, golden.end);

    SCOPED_TRACE(to_json(parsed));
    if (!golden.checks_ids) {
      for (auto& call : parsed.message.calls) {
        EXPECT_FALSE(call.id.empty());
        call.id.clear();
      }
    }
    EXPECT_EQ(parsed.message, golden.message);
    EXPECT_EQ(parsed.finish, golden.finish);
    EXPECT_EQ(sorted(parsed.recoveries), sorted(golden.recoveries));
  }
}

void expect_same(const Parsed& parsed, const Parsed& whole, const std::string& how) {
  EXPECT_EQ(parsed.trace, whole.trace) << how;
  EXPECT_EQ(parsed.message, whole.message) << how;
  EXPECT_EQ(parsed.finish, whole.finish) << how;
  EXPECT_EQ(sorted(parsed.recoveries), sorted(whole.recoveries)) << how;
}

TEST_P(Goldens, DoNotDependOnWhereTheTextIsCut) {
  Random random(20261121);
  for (const GoldenCase& golden : read_goldens(GetParam())) {
    SCOPED_TRACE(golden.name);
    const Parsed whole = parse_pieces(golden.options, golden.pieces, golden.end);
    const size_t bytes = total_bytes(golden);
    const auto with_cuts = [&](const std::vector<size_t>& offsets) {
      return parse_pieces(golden.options, cut(golden.pieces, offsets), golden.end);
    };

    std::vector<size_t> everywhere;
    for (size_t at = 1; at < bytes; ++at) {
      everywhere.push_back(at);
      expect_same(with_cuts({at}), whole, "cut at " + std::to_string(at));
    }
    expect_same(with_cuts(everywhere), whole, "byte by byte");
    for (int round = 0; round < 20; ++round) {
      std::vector<size_t> some;
      for (size_t at = 1; at < bytes; ++at) {
        if (random.below(6) == 0) {
          some.push_back(at);
        }
      }
      expect_same(with_cuts(some), whole, "random cuts");
    }
  }
}

void expect_complete_calls_are_json(const Parsed& parsed) {
  for (const FinalMessage::Call& call : parsed.message.calls) {
    EXPECT_TRUE(!call.complete || json::parse(call.arguments, {.depth_max = 600}))
        << call.arguments;
  }
}

/// Cut short anywhere, an output is still the same for every chunking, and a call that counts as
/// complete is one.
TEST_P(Goldens, MayEndAnywhere) {
  for (const GoldenCase& golden : read_goldens(GetParam())) {
    SCOPED_TRACE(golden.name);
    const size_t bytes = total_bytes(golden);
    std::vector<size_t> everywhere;
    for (size_t at = 1; at < bytes; ++at) {
      everywhere.push_back(at);
    }
    const std::vector<Piece> atoms = cut(golden.pieces, everywhere);
    for (size_t count = 0; count <= atoms.size(); count += 1 + atoms.size() / 64) {
      const std::vector<Piece> head(atoms.begin(), atoms.begin() + static_cast<ptrdiff_t>(count));
      std::vector<Piece> joined;
      for (const Piece& atom : head) {  // atoms of one ordinary piece lie side by side
        if (!joined.empty() && !joined.back().special && !atom.special &&
            joined.back().text.data() + joined.back().text.size() == atom.text.data()) {
          joined.back().text =
              std::string_view(joined.back().text.data(), joined.back().text.size() + 1);
        } else {
          joined.push_back(atom);
        }
      }
      for (const StreamEnd end : {StreamEnd::kLength, StreamEnd::kStop}) {
        const Parsed whole = parse_pieces(golden.options, joined, end);
        expect_same(parse_pieces(golden.options, head, end), whole,
                    "after " + std::to_string(count) + " pieces");
        expect_complete_calls_are_json(whole);
      }
    }
  }
}

/// One random change of the kind that models and sampling make: bytes lost, doubled, swapped in.
void mutate(std::string& text, const std::string& other, Random& random) {
  constexpr std::string_view kBytes = "<>{}[]\"\\,:;| \n/a1";
  switch (const size_t at = random.below(text.size() + 1); random.below(5)) {
    case 0:
      text.erase(at, 1 + random.below(8));
      break;
    case 1:
      text.insert(at, other.substr(random.below(other.size() + 1), 1 + random.below(20)));
      break;
    case 2:
      text.insert(at, 1, kBytes[random.below(kBytes.size())]);
      break;
    case 3:
      text.resize(at);
      break;
    default:
      text.insert(random.below(text.size() + 1), text.substr(at, 1 + random.below(40)));
  }
}

TEST_P(Goldens, DoNotDependOnCutsWhenMutated) {
  constexpr int kRounds = 200;
  Random random(20261122);
  const std::vector<GoldenCase> cases = read_goldens(GetParam());
  for (int round = 0; round < kRounds; ++round) {
    const GoldenCase& golden = cases[random.below(cases.size())];
    std::string text;
    for (const Piece& piece : golden.pieces) {
      text += piece.text;
    }
    for (uint64_t changes = 1 + random.below(4); changes > 0; --changes) {
      const GoldenCase& other = cases[random.below(cases.size())];
      mutate(text, std::string(other.pieces.empty() ? "" : other.pieces.back().text), random);
    }
    const std::vector<Piece> whole = {{.text = text}};
    std::vector<size_t> offsets;
    for (size_t at = 1; at < text.size(); ++at) {
      if (round % 2 == 0 || random.below(3) == 0) {
        offsets.push_back(at);
      }
    }
    expect_same(parse_pieces(golden.options, cut(whole, offsets), golden.end),
                parse_pieces(golden.options, whole, golden.end), text);
  }
}

/// A model that goes on with line breaks for ever must not make the parser hold them all.
TEST_P(Goldens, DoNotMakeTheParserHoldWhiteSpaceWithoutEnd) {
  constexpr size_t kFewSpaces = 4 * 4096;
  const std::string spaces(64, '\n');
  for (const GoldenCase& golden : read_goldens(GetParam())) {
    if (golden.finish == "length" || !golden.recoveries.empty()) {
      continue;
    }
    SCOPED_TRACE(golden.name);
    const auto parser = OutputParser::create(golden.options);
    for (const std::vector<Piece>& begin : {std::vector<Piece>(), golden.pieces}) {
      auto state = parser->make_state();
      EventList events;
      parser->feed(state, begin, events);
      const size_t held_before = state.held_bytes();
      for (int round = 0; round < 1000; ++round) {
        parser->feed(state, spaces, events);
      }
      EXPECT_LE(state.held_bytes(), held_before + kFewSpaces);
    }
  }
}

std::string family_of(const testing::TestParamInfo<std::string>& info) {
  return std::filesystem::path(info.param).stem().string();
}

INSTANTIATE_TEST_SUITE_P(Family, Goldens, testing::ValuesIn(golden_files()), family_of);

}  // namespace
}  // namespace stator::parsers
