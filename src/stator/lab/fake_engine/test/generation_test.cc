// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/generation.h"

#include <gtest/gtest.h>

namespace stator::fake_engine {
namespace {

using inference::FinishReason;

/// Ids that spell a text in a model without tokenizer.
std::vector<TokenId> spell(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) {
    ids.push_back(kIdsOnlyFirstByte + static_cast<unsigned char>(c));
  }
  return ids;
}

struct Shown {
  std::vector<std::string> texts;
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kNone;
  StopReason reason;
};

/// Feeds one token at a time; the last one with `finish`.
Shown run(const GenerateSpec& spec, const std::vector<TokenId>& ids, FinishReason finish,
          bool by_token = false) {
  const FakeModel model;
  ChoiceStream stream(model, spec, 0);
  Shown out;
  for (size_t i = 0; i < ids.size() && !stream.finished(); ++i) {
    const bool last = i + 1 == ids.size();
    auto delta = stream.feed({.tokens = std::span(ids).subspan(i, 1),
                              .logprobs = {},
                              .finish = last ? finish : FinishReason::kNone,
                              .stopped_by_token = last && by_token});
    if (delta) {
      out.texts.push_back(delta->text);
      out.tokens.insert(out.tokens.end(), delta->tokens.begin(), delta->tokens.end());
      out.finish = delta->finish;
      out.reason = delta->stop_reason;
    }
  }
  return out;
}

TEST(ChoiceStream, TextLagsByTheStopLengthAsVllmDoes) {
  const GenerateSpec spec{.stop_strings = {"zzzz"}};

  const Shown shown = run(spec, spell("abcdef"), FinishReason::kLength);

  EXPECT_EQ(shown.texts, (std::vector<std::string>{"", "", "", "a", "b", "cdef"}));
}

TEST(ChoiceStream, StopStringCutsTheTextButNotTheTokens) {
  const GenerateSpec spec{.stop_strings = {"cd"}};

  const Shown shown = run(spec, spell("abcdef"), FinishReason::kLength);

  EXPECT_EQ(shown.texts, (std::vector<std::string>{"", "a", "b", ""}));
  EXPECT_EQ(shown.tokens, spell("abcd"));
  EXPECT_EQ(shown.finish, FinishReason::kStop);
  EXPECT_EQ(shown.reason, StopReason(std::string("cd")));
}

TEST(ChoiceStream, PartialHoldBackOnlyHoldsWhatMayBeAStop) {
  const GenerateSpec spec{.stop_strings = {"cde"}, .hold_back = HoldBack::kPartial};

  const Shown shown = run(spec, spell("abcdx"), FinishReason::kLength);

  EXPECT_EQ(shown.texts, (std::vector<std::string>{"a", "b", "", "", "cdx"}));
}

TEST(ChoiceStream, StopTokenIsCountedButNotShown) {
  const GenerateSpec spec;

  const Shown shown = run(spec, spell("ab"), FinishReason::kStop, true);

  EXPECT_EQ(shown.texts, (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(shown.tokens, spell("ab"));
  EXPECT_EQ(shown.reason, StopReason(spell("b").front()));
}

TEST(ChoiceStream, IntervalGathersTokensAfterTheFirst) {
  const GenerateSpec spec{.stream_interval = 4};

  const Shown shown = run(spec, spell("abcdefgh"), FinishReason::kLength);

  EXPECT_EQ(shown.texts, (std::vector<std::string>{"a", "bcde", "fgh"}));
}

TEST(ChoiceStream, ScriptIsSaidAndEndsWithEos) {
  GenerateSpec spec;
  spec.script = spell("no");

  const Shown shown = run(spec, spell("xxxxxxxx"), FinishReason::kLength);

  EXPECT_EQ(shown.texts, (std::vector<std::string>{"n", "o", ""}));
  EXPECT_EQ(shown.tokens.back(), 2U);
  EXPECT_EQ(shown.finish, FinishReason::kStop);
}

}  // namespace
}  // namespace stator::fake_engine
