// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "stator/inference/sampling.h"
#include "stator/lab/fake_engine/published_blocks.h"
#include "stator/lab/fake_engine/vocabulary.h"

namespace stator::fake_engine {

/// How much of a text is kept back while a stop string might still begin in it.
enum class HoldBack : uint8_t {
  kNothing,     ///< SGLang: shown, then cut at the end
  kStopLength,  ///< vLLM: always the longest stop string less one character
  kPartial,     ///< llama.cpp: only what may be the beginning of a stop string
};

/// What a request of any dialect asks the engine for.
struct GenerateSpec {
  std::vector<std::vector<TokenId>> prompts;
  uint32_t n = 1;  ///< choices per prompt; choice i of prompt p has index p · n + i
  inference::SamplingParams sampling;
  inference::StopConditions stop;
  std::vector<std::string> stop_strings;
  bool include_stop = false;
  bool skip_special = true;
  HoldBack hold_back = HoldBack::kStopLength;
  BlockOwner owner;
  int32_t priority = 0;             ///< higher runs first
  std::optional<uint32_t> dp_rank;  ///< none: the least loaded one
  uint32_t stream_interval = 1;     ///< tokens per delta after the first
  /// Not 0: other tokens than usual, the same for the same number. For adapters and stale
  /// hand-offs.
  uint64_t altered = 0;
  /// Says these tokens and then EOS instead of its own (structured output, tool calls). The KV
  /// cache and its events still hold the model's own tokens.
  std::optional<std::vector<TokenId>> script;
  bool announce_hits = false;  ///< a prefix hit is published as a store again
};

/// What ended a choice: nothing or EOS, a stop token, a stop string.
using StopReason = std::variant<std::monostate, TokenId, std::string>;

/// News about one choice.
struct ChoiceDelta {
  uint32_t index = 0;
  std::vector<TokenId> tokens;
  std::string text;
  std::vector<inference::TokenLogprobs> logprobs;  ///< parallel to tokens, or empty
  inference::FinishReason finish = inference::FinishReason::kNone;
  StopReason stop_reason;
  uint32_t cached_tokens = 0;  ///< of the prompt, on the first delta
};

/// Tokens of one choice to deltas: text, stop strings, script, interval. Pure.
class ChoiceStream {
 public:
  /// `model` and `spec` must outlive it.
  ChoiceStream(const FakeModel& model, const GenerateSpec& spec, uint32_t index);

  struct Input {
    std::span<const TokenId> tokens;
    std::span<const inference::TokenLogprobs> logprobs;
    inference::FinishReason finish = inference::FinishReason::kNone;
    bool stopped_by_token = false;
    uint32_t cached_tokens = 0;
  };
  /// Nothing when there is nothing to say yet. After a delta with `finish` no more input.
  std::optional<ChoiceDelta> feed(const Input& input);
  bool finished() const { return finished_; }
  uint32_t generated() const { return generated_; }

 private:
  void take_token(const Input& input, size_t at);
  TokenId allowed(TokenId token) const;
  void show_token(TokenId token, bool hidden);
  bool find_stop(size_t from);
  size_t held_bytes() const;
  void end(inference::FinishReason reason, StopReason why);

  const FakeModel* model_;
  const GenerateSpec* spec_;
  TextStream text_stream_;
  std::string text_;  // everything so far
  size_t sent_ = 0;   // bytes of text_ in earlier deltas
  uint32_t generated_ = 0;
  bool sent_first_ = false;
  bool finished_ = false;
  ChoiceDelta delta_;  // being collected
};

}  // namespace stator::fake_engine
