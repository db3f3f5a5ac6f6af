// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "stator/api/response.h"
#include "stator/frontend/choice_decoder.h"
#include "stator/frontend/model_parsers.h"
#include "stator/parsers/event_list.h"
#include "stator/parsers/output_parser.h"

namespace stator::frontend {

/// How the output of one request is read, beyond plain text. Shared by its choices.
struct OutputFormat {
  std::shared_ptr<const parsers::OutputParser> parser;  ///< never null; cached ones are shared
  std::string name;                                     ///< of the family, for metrics
  MarkerTokens markers;        ///< tokens the parser must see, and see as tokens
  bool reasons = false;        ///< reasoning is told from content
  bool starts_inside = false;  ///< the output begins within reasoning
  bool hides_special = true;   ///< special tokens that are no markers are left out
  bool named_call = false;     ///< tool_choice named a function: a call still finishes as `stop`
};

/// What came out of a batch of tokens: `text` without a format, `events` with one.
struct PipelineOutput {
  std::string text;
  parsers::EventList events;

  void clear() {
    text.clear();
    events.clear();
  }
};

/// What became of a batch of tokens.
struct PipelineResult {
  Decoded decoded;
  api::ChoiceFinish finish = api::ChoiceFinish::kNone;
  uint32_t reasoning_tokens = 0;  ///< more than before
};

/// Tokens → content, reasoning and tool calls of one choice:
///
///   detokenizer → stop strings → OutputParser → events
///
/// Stop strings are looked for in everything the model writes, reasoning and calls included.
/// Without a format it is a ChoiceDecoder and costs nothing more. Pure; tokenizer, stops and format
/// outlive it.
///
/// P1  Every byte the decoder released is delivered to the parser exactly once, in order, a marker
///     token as one special piece.
class OutputPipeline {
 public:
  /// What it reads with; `stops` and `format` may be null.
  struct Parts {
    const tokenizer::Tokenizer& tokenizer;
    const parsers::StopMatcher* stops = nullptr;
    const OutputFormat* format = nullptr;
    DecodeOptions options;
  };
  OutputPipeline(const Parts& parts, uint32_t choice);
  OutputPipeline(OutputPipeline&&) noexcept;
  OutputPipeline& operator=(OutputPipeline&&) noexcept;
  ~OutputPipeline();

  /// As ChoiceDecoder::feed. Appends to `out`.
  PipelineResult feed(std::span<const TokenId> tokens, inference::FinishReason finish,
                      bool stopped_by_token, PipelineOutput& out);

  uint32_t generated() const { return decoder_.generated(); }
  /// What the model writes now is reasoning, as far as is certain.
  bool is_reasoning() const;

 private:
  struct Parsing;
  PipelineResult parse(std::span<const TokenId> tokens, inference::FinishReason finish,
                       bool stopped_by_token, PipelineOutput& out);
  void end_parse(PipelineResult& result, parsers::EventList& events);

  ChoiceDecoder decoder_;
  std::unique_ptr<Parsing> parsing_;  // null without a format
};

}  // namespace stator::frontend
