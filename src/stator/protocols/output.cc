// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/output.h"

namespace stator::protocols {

OutputItem& Output::item_of(OutputItem::Kind kind) {
  if (items_.empty() || items_.back().kind != kind) {
    items_.push_back({.kind = kind, .text = {}, .id = {}, .name = {}});
  }
  return items_.back();
}

OutputItem& Output::call_of(const api::ToolCallDelta& call) {
  while (call.index >= calls_.size()) {  // they begin in the order of their index
    calls_.push_back(items_.size());
    items_.push_back({.kind = OutputItem::Kind::kCall, .text = {}, .id = {}, .name = {}});
  }
  return items_[calls_[call.index]];
}

void Output::add(const Piece& piece) {
  if (!piece.text.empty()) {
    item_of(OutputItem::Kind::kText).text += piece.text;
  }
  if (!piece.reasoning.empty()) {
    item_of(OutputItem::Kind::kReasoning).text += piece.reasoning;
  }
  bytes_ += piece.text.size() + piece.reasoning.size();
  if (piece.call != nullptr) {
    OutputItem& call = call_of(*piece.call);
    call.id += piece.call->id;
    call.name += piece.call->name;
    call.text += piece.call->arguments;
    bytes_ += piece.call->arguments.size();
  }
  tokens_.insert(tokens_.end(), piece.tokens.begin(), piece.tokens.end());
  token_logprobs_.insert(token_logprobs_.end(), piece.token_logprobs.begin(),
                         piece.token_logprobs.end());
  bytes_ += piece.tokens.size_bytes() + piece.token_logprobs.size_bytes();
  if (piece.finish != api::ChoiceFinish::kNone) {
    finish_ = piece.finish;
    stop_string_ = piece.stop_string;
  }
}

}  // namespace stator::protocols
