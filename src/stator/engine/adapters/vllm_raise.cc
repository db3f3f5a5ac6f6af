// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "stator/engine/adapters/handoff.h"
#include "stator/engine/adapters/openai_choice.h"
#include "stator/engine/adapters/vllm.h"

namespace stator::engine::adapters {
namespace {

constexpr float kLogprobFloor = -9999.0F;

float logprob_of(const JsonElement& element) {
  double value = 0;
  return element.get(value) == simdjson::SUCCESS
             ? std::max(static_cast<float>(value), kLogprobFloor)
             : kLogprobFloor;
}

Error not_ids() {
  return {Code::kCorrupt,
          "vLLM spelled tokens as text although asked for ids (return_tokens_as_token_ids)"};
}

/// Both routes end alike: the stop token, or EOS, is the last one unless the reason is a string.
bool ends_with_stop_token(const OpenAiAnswer::Event& event, const Raised& raised) {
  std::string_view text;
  return raised.finish == inference::FinishReason::kStop && !raised.tokens.empty() &&
         text_or(event.choice, "finish_reason", "") == "stop" &&
         event.choice["stop_reason"].get(text) != simdjson::SUCCESS;
}

Status read_tokens(const OpenAiAnswer::Event& event, std::vector<TokenId>& out) {
  JsonArray tokens;
  if (!find_array(event.choice, "token_ids", tokens)) {
    return {};
  }
  return append_tokens(tokens, out);
}

/// Of the prompt, on both routes: null for its first token, then maps from "<id>" to
/// {logprob, rank}, of the likeliest tokens and the prompt's own.
class PromptReader {
 public:
  explicit PromptReader(const inference::EngineRequest& request) {
    if (request.prompt_logprobs) {
      prompt_ = request.tokens;
      alternatives_ = request.sampling.logprobs.value_or(0);
    }
  }

  Status read(const OpenAiAnswer::Event& event, Raised& out) const {
    if (prompt_.empty()) {
      return {};
    }
    JsonArray positions;
    if (!find_array(event.choice, "prompt_logprobs", positions) &&
        !find_array(event.root, "prompt_logprobs", positions)) {
      return Error(Code::kCorrupt, "vLLM sent no log-probabilities of the prompt");
    }
    size_t at = 0;
    for (const JsonElement position : positions) {
      JsonObject entries;
      if (at > 0 && at < prompt_.size() && position.get(entries) == simdjson::SUCCESS) {
        STATOR_TRY(auto made, read_position(entries, prompt_[at]));
        out.prompt_logprobs.push_back(std::move(made));
      }
      ++at;
    }
    return {};
  }

 private:
  Result<inference::TokenLogprobs> read_position(const JsonObject& entries, TokenId own) const {
    inference::TokenLogprobs made;
    made.sampled = {.token = own, .logprob = kLogprobFloor};
    for (const auto entry : entries) {
      JsonObject fields;
      inference::TokenLogprob read;
      const char* end = entry.key.data() + entry.key.size();
      if (std::from_chars(entry.key.data(), end, read.token).ptr != end ||
          entry.value.get(fields) != simdjson::SUCCESS) {
        return not_ids();
      }
      read.logprob =
          std::max(static_cast<float>(number_or(fields, "logprob", kLogprobFloor)), kLogprobFloor);
      read.rank = static_cast<uint32_t>(unsigned_or(fields, "rank", 0));
      if (read.token == own) {
        made.sampled = read;
      }
      if (read.rank > 0 && read.rank <= alternatives_) {
        made.top.push_back(read);
      }
    }
    std::ranges::sort(made.top, {}, &inference::TokenLogprob::rank);
    return made;
  }

  std::vector<TokenId> prompt_;  // empty: nobody asked
  uint32_t alternatives_ = 0;
};

/// An event of either route; they differ in how a choice spells its tokens.
class VllmRaiser : public EventRaiser {
 public:
  explicit VllmRaiser(const inference::EngineRequest& request)
      : alternatives_(request.sampling.logprobs),
        gives_(request.phase == inference::Phase::kPrefill),
        prompt_(request),
        answer_("vLLM") {}

  Status on_event(std::string_view json, Raised& out) final {
    STATOR_TRY(const OpenAiAnswer::Event event, answer_.read(json));
    if (gives_) {
      out.handoff = raw_object(json, {"kv_transfer_params"});
    }
    if (!event.has_choice) {
      return {};
    }
    STATOR_CHECK(prompt_.read(event, out));
    Raised& target = answer_.target(out);
    STATOR_CHECK(read_choice(event, target));
    if (answer_.finished()) {
      target.last_is_stop = ends_with_stop_token(event, target);
    }
    return {};
  }
  Status on_done(Raised& out) final { return answer_.done(out); }

 protected:
  /// Likeliest tokens asked for beside each one; nothing: no log-probabilities at all.
  const std::optional<uint32_t>& alternatives() const { return alternatives_; }

 private:
  /// Tokens and their log-probabilities.
  virtual Status read_choice(const OpenAiAnswer::Event& event, Raised& target) const = 0;

  const std::optional<uint32_t> alternatives_;
  const bool gives_;  // a prompt, to another server
  const PromptReader prompt_;
  OpenAiAnswer answer_;
};

class CompletionRaiser final : public VllmRaiser {
 public:
  using VllmRaiser::VllmRaiser;

 private:
  Status read_choice(const OpenAiAnswer::Event& event, Raised& target) const override {
    const size_t before = target.tokens.size();
    STATOR_CHECK(read_tokens(event, target.tokens));
    if (before == target.tokens.size() && !text_or(event.choice, "text", "").empty()) {
      STATOR_CHECK(read_spelled_tokens(event, target.tokens));
    }
    return alternatives() ? read_logprobs(event, target) : Status();
  }

  /// Servers before 0.10 ignore return_token_ids, but spell tokens of log-probabilities as ids.
  static Status read_spelled_tokens(const OpenAiAnswer::Event& event, std::vector<TokenId>& out) {
    JsonObject logprobs;
    JsonArray spelled;
    if (!find_object(event.choice, "logprobs", logprobs) ||
        !find_array(logprobs, "tokens", spelled)) {
      return Error(Code::kUnsupported,
                   "this vLLM does not return token ids: upgrade it, or use --engine openai");
    }
    for (const JsonElement element : spelled) {
      std::string_view text;
      static_cast<void>(element.get(text));
      const auto token = parse_token_text(text);
      if (!token) {
        return not_ids();
      }
      out.push_back(*token);
    }
    return {};
  }

  Status read_logprobs(const OpenAiAnswer::Event& event, Raised& target) const {
    JsonObject logprobs;
    JsonArray values;
    JsonArray tops;
    if (!find_object(event.choice, "logprobs", logprobs) ||
        !find_array(logprobs, "token_logprobs", values)) {
      return {};  // a chunk without tokens has none
    }
    size_t at = target.logprobs.size();
    for (const JsonElement value : values) {
      if (at >= target.tokens.size()) {
        break;
      }
      target.logprobs.push_back(
          {.sampled = {.token = target.tokens[at++], .logprob = logprob_of(value)}, .top = {}});
    }
    if (find_array(logprobs, "top_logprobs", tops)) {
      size_t of = at - std::min(at, values.size());
      for (const JsonElement top : tops) {
        if (of >= target.logprobs.size()) {
          break;
        }
        STATOR_CHECK(read_top(top, target.logprobs[of++]));
      }
    }
    return {};
  }

  /// A map from token to value: the sampled token and, in it or beside it, the likeliest ones.
  Status read_top(const JsonElement& element, inference::TokenLogprobs& out) const {
    JsonObject top;
    if (element.get(top) != simdjson::SUCCESS) {
      set_ranks(out);
      return {};
    }
    for (const auto entry : top) {
      const auto token = parse_token_text(entry.key);
      if (!token) {
        return not_ids();
      }
      out.top.push_back({.token = *token, .logprob = logprob_of(entry.value)});
    }
    if (out.top.size() > *alternatives()) {
      std::erase_if(out.top, [&](const auto& entry) { return entry.token == out.sampled.token; });
    }
    if (out.top.size() > *alternatives()) {
      out.top.resize(*alternatives());
    }
    set_ranks(out);
    return {};
  }
};

class GenerateRaiser final : public VllmRaiser {
 public:
  using VllmRaiser::VllmRaiser;

 private:
  Status read_choice(const OpenAiAnswer::Event& event, Raised& target) const override {
    STATOR_CHECK(read_tokens(event, target.tokens));
    JsonObject entries;
    JsonArray content;
    if (alternatives() && find_object(event.choice, "logprobs", entries) &&
        find_array(entries, "content", content)) {
      for (const JsonElement element : content) {
        STATOR_CHECK(read_token(element, target));
      }
    }
    return {};
  }

  /// {token_id, logprob, rank}; before 0.32 {token: "token_id:<n>", logprob}.
  static Result<inference::TokenLogprob> read_entry(const JsonObject& entry) {
    inference::TokenLogprob out;
    const auto spelled = parse_token_text(text_or(entry, "token", ""));
    const uint64_t token = unsigned_or(entry, "token_id", spelled.value_or(UINT32_MAX));
    if (token >= UINT32_MAX) {
      return not_ids();
    }
    out.token = static_cast<TokenId>(token);
    out.logprob =
        std::max(static_cast<float>(number_or(entry, "logprob", kLogprobFloor)), kLogprobFloor);
    out.rank = static_cast<uint32_t>(unsigned_or(entry, "rank", 0));
    return out;
  }

  Status read_token(const JsonElement& element, Raised& target) const {
    JsonObject fields;
    if (element.get(fields) != simdjson::SUCCESS) {
      return not_ids();
    }
    inference::TokenLogprobs made;
    STATOR_TRY(made.sampled, read_entry(fields));
    JsonArray top;
    if (find_array(fields, "top_logprobs", top)) {
      for (const JsonElement entry : top) {
        JsonObject object;
        if (entry.get(object) == simdjson::SUCCESS) {
          STATOR_TRY(const inference::TokenLogprob read, read_entry(object));
          made.top.push_back(read);
        }
      }
    }
    if (made.top.size() > *alternatives()) {
      std::erase_if(made.top, [&](const auto& entry) { return entry.rank > *alternatives(); });
    }
    const uint32_t rank = made.sampled.rank;
    set_ranks(made);
    made.sampled.rank = rank > 0 ? rank : made.sampled.rank;
    target.logprobs.push_back(std::move(made));
    return {};
  }
};

}  // namespace

std::optional<TokenId> parse_token_text(std::string_view text) {
  constexpr std::string_view kPrefix = "token_id:";
  if (!text.starts_with(kPrefix)) {
    return std::nullopt;
  }
  text.remove_prefix(kPrefix.size());
  TokenId token = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), token);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(token)
                                                                  : std::nullopt;
}

std::unique_ptr<EventRaiser> make_vllm_completion_raiser(const inference::EngineRequest& request) {
  return std::make_unique<CompletionRaiser>(request);
}

std::unique_ptr<EventRaiser> make_vllm_generate_raiser(const inference::EngineRequest& request) {
  return std::make_unique<GenerateRaiser>(request);
}

}  // namespace stator::engine::adapters
