// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/lab/fake_engine/fake_config.h"
#include "stator/tokenizer/incremental_detokenizer.h"

namespace stator::fake_engine {

// Text and ids of a FakeModel, with or without a tokenizer. Pure.

inline constexpr TokenId kIdsOnlyBos = 1;
inline constexpr TokenId kIdsOnlyFirstByte = 3;

/// Ids of a text; `add_special`: BOS and what else the model puts around it.
Result<std::vector<TokenId>> encode_text(const FakeModel& model, std::string_view text,
                                         bool add_special);
std::string decode_text(const FakeModel& model, std::span<const TokenId> ids);
/// One token as it is shown in logprobs.
std::string token_text(const FakeModel& model, TokenId id);
/// One token as it is spelled in the vocabulary file, where that is known.
std::string token_spelling(const FakeModel& model, TokenId id);

/// A conversation as the model's prompt.
struct Conversation {
  std::string_view messages_json;
  std::string_view tools_json;  ///< empty = none
  bool add_generation_prompt = true;
};
Result<std::string> render_chat(const FakeModel& model, const Conversation& conversation,
                                WallTime now);

/// Text of a growing run of tokens.
class TextStream {
 public:
  /// `model` must outlive it.
  TextStream(const FakeModel& model, bool skip_special);
  void step(TokenId id, std::string& out);
  void finish(std::string& out);

 private:
  const FakeModel* model_;
  bool skip_special_;
  std::optional<tokenizer::IncrementalDetokenizer> detokenizer_;  // none: ids only
};

}  // namespace stator::fake_engine
