// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/parsers/family_spec.h"
#include "stator/parsers/output_parser.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::frontend {

/// The markers of an output format that one tokenizer writes as one token: only that token counts
/// as the marker, the same letters from ordinary tokens are text.
struct MarkerTokens {
  std::vector<TokenId> ids;        ///< sorted
  std::vector<std::string> texts;  ///< of the markers that the format calls special

  bool contains(TokenId token) const;
  MarkerTokens& operator+=(const MarkerTokens& other);
};

/// In which formats one model writes tool calls and reasoning. Decided once, when it is loaded.
struct ModelParsers {
  std::shared_ptr<const parsers::FamilySpec> tools;  // null: none; shared with running requests
  std::shared_ptr<const parsers::ReasoningSpec> reasoning;  // the same
  MarkerTokens tool_markers;
  MarkerTokens reasoning_markers;
  /// For answers without tools, which ask nothing of the request: shared by all of them.
  std::shared_ptr<const parsers::OutputParser> reasoning_on;      ///< ReasoningMode::kOn
  std::shared_ptr<const parsers::OutputParser> reasoning_inside;  ///< ReasoningMode::kStartsInside
  std::string why;                                                ///< one sentence for the log
};

/// What an operator said about a model, and what its files say.
struct ParserWishes {
  std::string_view tools = "auto";      ///< a family's name, "auto" or "none"
  std::string_view reasoning = "auto";  ///< the same
  std::string_view chat_template;       ///< its text; empty: the model has none
  std::string_view model_name;
};

/// kNotFound for a name that `families` does not have. Pure.
Result<ModelParsers> choose_parsers(const parsers::FamilyRegistry& families,
                                    const ParserWishes& wishes,
                                    const tokenizer::Tokenizer& tokenizer);

/// The built-in families and those of the file at `spec_path`, if it is not empty. Blocking.
Result<std::shared_ptr<const parsers::FamilyRegistry>> load_families(const std::string& spec_path);

}  // namespace stator::frontend
