// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/choice_decoder.h"

namespace stator::frontend {

ChoiceDecoder::ChoiceDecoder(const tokenizer::Tokenizer& tokenizer,
                             const parsers::StopMatcher* stops, DecodeOptions options)
    : detokenizer_(tokenizer, options.skip_special), stops_(stops), options_(options) {}

std::optional<size_t> ChoiceDecoder::match(std::string_view piece, std::string& text) {
  decoded_bytes_ += piece.size();
  if (stops_ == nullptr) {
    text += piece;
    return std::nullopt;
  }
  const auto matchable =
      generated_ > options_.min_tokens ? parsers::Matchable::kYes : parsers::Matchable::kNo;
  const auto found = stops_->feed(stop_state_, piece, options_.include_stop, text, matchable);
  return found ? std::optional(found->index) : std::nullopt;
}

Decoded ChoiceDecoder::feed(std::span<const TokenId> tokens, inference::FinishReason finish,
                            bool stopped_by_token, std::string& text) {
  Decoded decoded;
  std::string piece;
  for (size_t i = 0; i < tokens.size(); ++i) {
    ++generated_;
    ++decoded.tokens_used;
    const bool ends_it = finish == inference::FinishReason::kStop && i + 1 == tokens.size();
    if (ends_it) {
      break;  // EOS and stop tokens are counted, not shown
    }
    if (!options_.has_text) {
      continue;
    }
    piece.clear();
    detokenizer_.step(tokens[i], piece);
    if (const auto stop = match(piece, text)) {
      decoded.finish = inference::FinishReason::kStop;
      decoded.stop_string = stop;
      return decoded;
    }
  }
  if (finish == inference::FinishReason::kNone) {
    return decoded;
  }
  decoded.finish = finish;
  piece.clear();
  detokenizer_.finish(piece);
  std::optional<size_t> stop = match(piece, text);
  if (!stop && stops_ != nullptr) {
    const auto last = stops_->flush(stop_state_, options_.include_stop, text);
    stop = last ? std::optional(last->index) : std::nullopt;
  }
  if (stop) {
    decoded.finish = inference::FinishReason::kStop;
    decoded.stop_string = stop;
  } else if (stopped_by_token && !tokens.empty()) {
    decoded.stop_token = tokens.back();
  }
  return decoded;
}

}  // namespace stator::frontend
