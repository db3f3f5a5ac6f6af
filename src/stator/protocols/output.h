// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stator/api/response.h"
#include "stator/protocols/protocol.h"

namespace stator::protocols {

/// A stretch of what the model said.
struct OutputItem {
  enum class Kind : uint8_t { kText, kReasoning, kCall };
  Kind kind = Kind::kText;
  std::string text;  ///< of a call: its arguments, JSON unless the model was cut off
  std::string id;    ///< of a call
  std::string name;  ///< of a call
};

/// What a model said, as a list of items in the order in which it began them: pieces of one kind
/// that follow each other are one item, pieces of a call belong to the call they name.
class Output {
 public:
  void add(const Piece& piece);

  std::span<const OutputItem> items() const { return items_; }
  // Of plain protocols.
  std::span<const TokenId> tokens() const { return tokens_; }
  std::span<const inference::TokenLogprobs> token_logprobs() const { return token_logprobs_; }
  api::ChoiceFinish finish() const { return finish_; }
  const std::optional<std::string>& stop_string() const { return stop_string_; }
  /// Of text, reasoning and arguments so far.
  size_t bytes() const { return bytes_; }

 private:
  OutputItem& item_of(OutputItem::Kind kind);
  OutputItem& call_of(const api::ToolCallDelta& call);

  std::vector<OutputItem> items_;
  std::vector<TokenId> tokens_;
  std::vector<inference::TokenLogprobs> token_logprobs_;
  std::vector<size_t> calls_;  // index of a call → its item
  api::ChoiceFinish finish_ = api::ChoiceFinish::kStop;
  std::optional<std::string> stop_string_;
  size_t bytes_ = 0;
};

}  // namespace stator::protocols
