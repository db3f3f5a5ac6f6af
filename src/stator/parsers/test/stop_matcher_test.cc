// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/stop_matcher.h"

#include "stator/core/random.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace stator::parsers {
namespace {

std::shared_ptr<const StopMatcher> make(const std::vector<std::string>& stops) {
  auto matcher = StopMatcher::create(stops);
  EXPECT_TRUE(matcher.has_value());
  return *matcher;
}

struct Outcome {
  std::string text;
  std::optional<size_t> stop;
  friend bool operator==(const Outcome&, const Outcome&) = default;
  friend void PrintTo(const Outcome& outcome, std::ostream* out) {
    *out << testing::PrintToString(outcome.text) << " stop "
         << (outcome.stop ? std::to_string(*outcome.stop) : "none");
  }
};

/// The definition, word by word: earliest start, then longest, then list order.
Outcome naive(const std::vector<std::string>& stops, const std::string& text, IncludeStop include,
              size_t matchable_from) {
  for (size_t begin = matchable_from; begin < text.size(); ++begin) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      const bool matches = text.compare(begin, stops[i].size(), stops[i]) == 0;
      if (matches && (!best || stops[i].size() > stops[*best].size())) {
        best = i;
      }
    }
    if (best) {
      const size_t end = include == IncludeStop::kYes ? begin + stops[*best].size() : begin;
      return {text.substr(0, end), best};
    }
  }
  return {text, std::nullopt};
}

/// Longest suffix of `text` that is a proper prefix of a stop string.
size_t naive_held_bytes(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t begin = 0; begin < text.size(); ++begin) {
    for (const std::string& stop : stops) {
      if (text.size() - begin < stop.size() && stop.starts_with(text.substr(begin))) {
        return text.size() - begin;
      }
    }
  }
  return 0;
}

Outcome feed_all(const StopMatcher& matcher, const std::vector<std::string>& parts,
                 IncludeStop include = IncludeStop::kNo) {
  StopMatcher::State state;
  Outcome outcome;
  for (const std::string& part : parts) {
    if (const auto match = matcher.feed(state, part, include, outcome.text)) {
      outcome.stop = match->index;
    }
  }
  if (const auto match = matcher.flush(state, include, outcome.text)) {
    outcome.stop = match->index;
  }
  return outcome;
}

uint64_t test_seed() {
  const char* seed = std::getenv("STATOR_TEST_SEED");  // NOLINT(concurrency-mt-unsafe): one thread
  return seed != nullptr ? std::strtoull(seed, nullptr, 10) : 20240611;
}

std::string random_text(Random& random, size_t length_max, uint64_t letters) {
  std::string text;
  const uint64_t length = 1 + random.below(length_max);
  for (uint64_t i = 0; i < length; ++i) {
    text.push_back(static_cast<char>('a' + random.below(letters)));
  }
  return text;
}

TEST(StopMatcher, HidesAStopStringThatArrivesInPieces) {
  const auto matcher = make({"<end>"});

  EXPECT_EQ(feed_all(*matcher, {"hello <", "en", "d> more"}), (Outcome{"hello ", 0}));
}

TEST(StopMatcher, ReleasesAPrefixThatTurnsOutHarmless) {
  const auto matcher = make({"<end>"});
  StopMatcher::State state;
  std::string out;

  EXPECT_FALSE(matcher->feed(state, "a<en", IncludeStop::kNo, out));
  EXPECT_EQ(out, "a");
  EXPECT_EQ(state.held_bytes(), 3);
  EXPECT_FALSE(matcher->feed(state, "<", IncludeStop::kNo, out));

  EXPECT_EQ(out, "a<en");
  EXPECT_EQ(state.held_bytes(), 1);
}

TEST(StopMatcher, KeepsTheStopStringWhenAsked) {
  EXPECT_EQ(feed_all(*make({"END"}), {"the E", "ND of"}, IncludeStop::kYes),
            (Outcome{"the END", 0}));
}

TEST(StopMatcher, PrefersTheEarliestStart) {
  EXPECT_EQ(feed_all(*make({"bc", "abcd"}), {"xabcd"}), (Outcome{"x", 1}));
  EXPECT_EQ(feed_all(*make({"bc", "abcd"}), {"xabce"}), (Outcome{"xa", 0}));
}

TEST(StopMatcher, PrefersTheLongestOfEqualStarts) {
  EXPECT_EQ(feed_all(*make({"ab", "abcd"}), {"ab", "cd"}, IncludeStop::kYes), (Outcome{"abcd", 1}));
  EXPECT_EQ(feed_all(*make({"ab", "abcd"}), {"ab", "ce"}, IncludeStop::kYes), (Outcome{"ab", 0}));
}

TEST(StopMatcher, PrefersTheFirstOfEqualStrings) {
  EXPECT_EQ(feed_all(*make({"x", "stop", "stop"}), {"a stop"}), (Outcome{"a ", 1}));
}

TEST(StopMatcher, FinalMatchAtTheEndIsReturnedByFlush) {
  const auto matcher = make({"ab", "abcd"});
  StopMatcher::State state;
  std::string out;

  EXPECT_FALSE(matcher->feed(state, "xabc", IncludeStop::kNo, out));
  const auto match = matcher->flush(state, IncludeStop::kNo, out);

  EXPECT_EQ(match, StopMatcher::Match{0});
  EXPECT_EQ(out, "x");
  EXPECT_TRUE(state.matched());
}

TEST(StopMatcher, IsOverAfterAMatch) {
  const auto matcher = make({"x"});
  StopMatcher::State state;
  std::string out;
  EXPECT_TRUE(matcher->feed(state, "ax", IncludeStop::kNo, out));

  EXPECT_FALSE(matcher->feed(state, "bx", IncludeStop::kNo, out));
  EXPECT_FALSE(matcher->flush(state, IncludeStop::kNo, out));

  EXPECT_EQ(out, "a");
}

TEST(StopMatcher, TextBeforeMinTokensMayNotStartAMatch) {
  const auto matcher = make({"stop"});
  StopMatcher::State state;
  std::string out;

  EXPECT_FALSE(matcher->feed(state, "stop st", IncludeStop::kNo, out, Matchable::kNo));
  EXPECT_FALSE(matcher->feed(state, "op st", IncludeStop::kNo, out));
  EXPECT_EQ(out, "stop stop ");
  EXPECT_TRUE(matcher->feed(state, "op", IncludeStop::kNo, out));

  EXPECT_EQ(out, "stop stop ");
}

TEST(StopMatcher, NotMatchableTextReleasesWhatWasHeld) {
  const auto matcher = make({"stop"});
  StopMatcher::State state;
  std::string out;
  EXPECT_FALSE(matcher->feed(state, "sto", IncludeStop::kNo, out));

  EXPECT_FALSE(matcher->feed(state, "p", IncludeStop::kNo, out, Matchable::kNo));

  EXPECT_EQ(out, "stop");
  EXPECT_EQ(state.held_bytes(), 0);
}

TEST(StopMatcher, EmptyListPassesEverything) {
  const auto matcher = make({});

  EXPECT_TRUE(matcher->empty());
  EXPECT_EQ(feed_all(*matcher, {"a", "", "b"}), (Outcome{"ab", std::nullopt}));
}

TEST(StopMatcher, MatchesAnyBytes) {
  const std::string nul("\0\xFF", 2);

  EXPECT_EQ(feed_all(*make({nul, "\xC3\xA9"}), {"caf\xC3", "\xA9"}), (Outcome{"caf", 1}));
  EXPECT_EQ(feed_all(*make({nul}), {std::string("a\0", 2), "\xFF"}), (Outcome{"a", 0}));
}

TEST(StopMatcher, RefusesWhatIsBeyondItsLimits) {
  const auto code = [](const std::vector<std::string>& stops) {
    const auto matcher = StopMatcher::create(stops);
    return matcher.has_value() ? std::nullopt : std::optional(matcher.error().code());
  };

  EXPECT_EQ(code({"a", ""}), Code::kInvalidArgument);
  EXPECT_EQ(code(std::vector<std::string>(kMaxStopStrings + 1, "x")), Code::kInvalidArgument);
  EXPECT_EQ(code({std::string(kMaxStopBytesTotal, 'x'), "y"}), Code::kInvalidArgument);
  EXPECT_EQ(code(std::vector<std::string>(kMaxStopStrings, "x")), std::nullopt);
  EXPECT_EQ(code({std::string(kMaxStopBytesTotal, 'x')}), std::nullopt);
}

TEST(StopMatcher, LongestAllowedStringMatches) {
  const std::string longest(kMaxStopBytesTotal, 'a');
  const auto matcher = make({longest});

  EXPECT_EQ(feed_all(*matcher, {"b", longest.substr(1), "b" + longest, "x"}),
            (Outcome{"b" + longest.substr(1) + "b", 0}));
}

TEST(StopMatcher, EqualsTheDefinitionForRandomTextsAndSplits) {
  Random random(test_seed());
  RecordProperty("seed", std::to_string(random.seed()));
  for (int round = 0; round < 20'000; ++round) {
    const uint64_t letters = 1 + random.below(3);
    std::vector<std::string> stops;
    for (uint64_t i = 1 + random.below(4); i > 0; --i) {
      stops.push_back(random_text(random, 5, letters));
    }
    const std::string text = random_text(random, 24, letters + random.below(2));
    const IncludeStop include = random.below(2) == 0 ? IncludeStop::kNo : IncludeStop::kYes;
    const size_t unmatchable = random.below(4) == 0 ? random.below(text.size()) : 0;
    const auto matcher = make(stops);
    SCOPED_TRACE(testing::PrintToString(stops) + " in " + text + ", seed " +
                 std::to_string(random.seed()));

    StopMatcher::State state;
    Outcome outcome;
    const auto note = [&](std::optional<StopMatcher::Match> match) {
      if (match) {
        outcome.stop = match->index;
      }
    };
    note(matcher->feed(state, text.substr(0, unmatchable), include, outcome.text, Matchable::kNo));
    for (size_t at = unmatchable; at < text.size();) {
      const size_t length = 1 + random.below(4);
      note(matcher->feed(state, std::string_view(text).substr(at, length), include, outcome.text));
      at = std::min(at + length, text.size());
      const std::string fed = text.substr(unmatchable, at - unmatchable);
      if (!outcome.stop && !naive(stops, fed, include, 0).stop) {
        ASSERT_EQ(state.held_bytes(), naive_held_bytes(stops, fed));                        // S1
        ASSERT_EQ(outcome.text + text.substr(at - state.held_bytes(), state.held_bytes()),  // S2
                  text.substr(0, at));
      }
    }
    note(matcher->flush(state, include, outcome.text));

    ASSERT_EQ(outcome, naive(stops, text, include, unmatchable));
  }
}

}  // namespace
}  // namespace stator::parsers
