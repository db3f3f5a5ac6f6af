// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/generation.h"

#include <algorithm>
#include <utility>

namespace stator::fake_engine {
namespace {

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

size_t characters_of(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char byte) { return !continues_character(byte); }));
}

/// Bytes of the last `characters` characters.
size_t tail_bytes(std::string_view text, size_t characters) {
  size_t at = text.size();
  while (characters > 0 && at > 0) {
    --at;
    if (!continues_character(text[at])) {
      --characters;
    }
  }
  return text.size() - at;
}

}  // namespace

ChoiceStream::ChoiceStream(const FakeModel& model, const GenerateSpec& spec, uint32_t index)
    : model_(&model), spec_(&spec), text_stream_(model, spec.skip_special) {
  delta_.index = index;
}

std::optional<ChoiceDelta> ChoiceStream::feed(const Input& input) {
  if (finished_) {
    return std::nullopt;
  }
  delta_.cached_tokens = std::max(delta_.cached_tokens, input.cached_tokens);
  for (size_t i = 0; i < input.tokens.size() && !finished_; ++i) {
    take_token(input, i);
  }
  if (!finished_ && input.finish != inference::FinishReason::kNone) {
    end(input.finish, {});
  }
  const size_t wanted = sent_first_ ? spec_->stream_interval : 1;
  if (!finished_ && delta_.tokens.size() < wanted) {
    return std::nullopt;
  }
  const size_t visible = text_.size() - (finished_ ? 0 : std::min(held_bytes(), text_.size()));
  if (visible > sent_) {
    delta_.text = text_.substr(sent_, visible - sent_);
    sent_ = visible;
  }
  sent_first_ = true;
  ChoiceDelta out = std::exchange(delta_, {});
  delta_.index = out.index;
  return out;
}

/// The token itself, or the next one that the request lets pass.
TokenId ChoiceStream::allowed(TokenId token) const {
  const inference::SamplingParams& sampling = spec_->sampling;
  if (!sampling.allowed_token_ids.empty()) {
    return sampling.allowed_token_ids[token % sampling.allowed_token_ids.size()];
  }
  const auto is_bad = [&](TokenId id) {
    const std::string text = token_text(*model_, id);
    return std::ranges::any_of(sampling.bad_words,
                               [&](const std::string& word) { return text.contains(word); });
  };
  for (uint32_t tries = 0; tries < model_->vocab_size && is_bad(token); ++tries) {
    token = (token + 1) % model_->vocab_size;
  }
  return token;
}

void ChoiceStream::take_token(const Input& input, size_t at) {
  TokenId token = input.tokens[at];
  bool is_last = at + 1 == input.tokens.size() && input.finish == inference::FinishReason::kStop;
  bool by_token = is_last && input.stopped_by_token;
  const bool script_ends = spec_->script && generated_ >= spec_->script->size();
  if (spec_->script) {
    token = script_ends ? model_->eos_token_ids.front() : (*spec_->script)[generated_];
    is_last = script_ends;
    by_token = false;
  }
  if (!is_last && !spec_->script) {
    token = allowed(token);
  }
  ++generated_;
  delta_.tokens.push_back(token);
  if (at < input.logprobs.size()) {
    delta_.logprobs.push_back(input.logprobs[at]);
    delta_.logprobs.back().sampled.token = token;
    if (!delta_.logprobs.back().top.empty()) {
      delta_.logprobs.back().top.front().token = token;
    }
  }
  const size_t before = text_.size();
  show_token(token, is_last);
  if (find_stop(before)) {
    return;
  }
  if (is_last) {
    end(inference::FinishReason::kStop, by_token ? StopReason(token) : StopReason());
  }
}

void ChoiceStream::show_token(TokenId token, bool hidden) {
  if (!hidden || spec_->include_stop) {
    text_stream_.step(token, text_);
  }
}

/// Looks for a stop string that ends behind `from`; the one that begins first wins.
bool ChoiceStream::find_stop(size_t from) {
  size_t best = std::string::npos;
  const std::string* which = nullptr;
  for (const std::string& stop : spec_->stop_strings) {
    const size_t reach = stop.size() - 1;
    const size_t found = text_.find(stop, from > reach ? from - reach : 0);
    if (found < best) {
      best = found;
      which = &stop;
    }
  }
  if (which == nullptr) {
    return false;
  }
  text_.resize(best + (spec_->include_stop ? which->size() : 0));
  finished_ = true;
  delta_.finish = inference::FinishReason::kStop;
  delta_.stop_reason = *which;
  return true;
}

size_t ChoiceStream::held_bytes() const {
  if (spec_->stop_strings.empty() || spec_->hold_back == HoldBack::kNothing) {
    return 0;
  }
  if (spec_->hold_back == HoldBack::kStopLength) {
    size_t longest = 0;
    for (const std::string& stop : spec_->stop_strings) {
      longest = std::max(longest, characters_of(stop));
    }
    return spec_->include_stop ? 0 : tail_bytes(text_, longest - 1);
  }
  size_t held = 0;
  for (const std::string& stop : spec_->stop_strings) {
    for (size_t length = std::min(stop.size() - 1, text_.size()); length > held; --length) {
      if (text_.ends_with(std::string_view(stop).substr(0, length))) {
        held = length;
      }
    }
  }
  return held;
}

void ChoiceStream::end(inference::FinishReason reason, StopReason why) {
  text_stream_.finish(text_);
  finished_ = true;
  delta_.finish = reason;
  delta_.stop_reason = std::move(why);
}

}  // namespace stator::fake_engine
