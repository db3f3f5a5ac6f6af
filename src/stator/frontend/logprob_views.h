// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "stator/api/response.h"
#include "stator/inference/sampling.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::frontend {

/// Log-probabilities in the view types of answers' writers. The source and the tokenizer must
/// outlive the views.
class LogprobViews {
 public:
  /// `text_offset`: code points before the first entry; afterwards, behind the last.
  LogprobViews(const tokenizer::Tokenizer& tokenizer,
               std::span<const inference::TokenLogprobs> source, uint32_t& text_offset) {
    size_t alternatives = 0;
    for (const inference::TokenLogprobs& entry : source) {
      alternatives += entry.top.size();
    }
    top_.reserve(alternatives);  // the spans below point into it
    entries_.reserve(source.size());
    for (const inference::TokenLogprobs& entry : source) {
      const size_t first = top_.size();
      for (const inference::TokenLogprob& choice : entry.top) {
        top_.push_back(
            {choice.token, choice.logprob, tokenizer.token_bytes(choice.token), choice.rank});
      }
      const std::string_view bytes = tokenizer.token_bytes(entry.sampled.token);
      entries_.push_back({{entry.sampled.token, entry.sampled.logprob, bytes, entry.sampled.rank},
                          std::span(top_).subspan(first),
                          text_offset});
      text_offset += count_code_points(bytes);
    }
  }
  std::span<const api::LogprobEntry> entries() const { return entries_; }

 private:
  static uint32_t count_code_points(std::string_view text) {
    return static_cast<uint32_t>(std::ranges::count_if(
        text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
  }

  std::vector<api::TokenChoice> top_;
  std::vector<api::LogprobEntry> entries_;
};

}  // namespace stator::frontend
