// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stator/api/generate_reader.h"
#include "stator/api/parse_body.h"
#include "stator/json/writer.h"
#include "stator/protocols/output.h"
#include "stator/protocols/tokens/tokens.h"

namespace stator::protocols::tokens {
namespace {

using api::FieldReader;
using api::Path;
using api::Rank;

// text-generation-inference's own default.
constexpr uint32_t kMaxNewTokensDefault = 100;

struct TgiEcho final : Echo {
  std::string prompt;  ///< in front of generated_text; empty: not asked for
  bool details = false;
  bool top_tokens = false;
};

struct Reader {
  api::GenerateReader common;
  Reading& reading;
  FieldReader& in;
  TgiEcho& echo;
  bool has_prompt = false;
  bool full_text = false;
  std::optional<bool> samples = {};  ///< do_sample
  bool has_sampling = false;         ///< some of what only matters where tokens are drawn
  uint32_t top_tokens = 0;
};

/// text-generation-inference's names of fields that all servers have.
constexpr auto kRenamed = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"adapter_id", "model"},
    {"frequency_penalty", "frequency_penalty"},
    {"max_new_tokens", "max_tokens"},
    {"repetition_penalty", "repetition_penalty"},
    {"seed", "seed"},
    {"stop", "stop"},
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"truncate", "truncate_prompt_tokens"},
});

/// {"type": "json" | "regex" | "json_schema", "value": …}
void read_grammar(Reader& r, const Path& path) {
  std::string type;
  std::string_view value;
  const bool present = r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "type") {
      type = r.in.string(member).value_or("");
    } else if (key == "value") {
      value = r.in.any(member).value_or(std::string_view());
    } else {
      r.in.skip();
    }
  });
  if (!present) {
    return;
  }
  if (value.empty() || (type != "json" && type != "regex")) {
    r.in.violation(path, R"(must be {"type": "json" or "regex", "value": …})");
    return;
  }
  r.common.structured_fields.emplace_back(type == "json" ? "guided_json" : "guided_regex", value);
}

void read_one(Reader& r, std::string_view key, const Path& path) {
  if (const auto n = r.in.integer<uint32_t>(path, 1, api::kMaxBestOf); n.value_or(1) != 1) {
    r.in.violation(path, fmt::format("must be 1: ask /v1/completions for {}", key));
  }
}

void refuse_true(Reader& r, const Path& path) {
  if (r.in.boolean(path) == true) {
    r.in.violation(path, "is not supported here: leave it out");
  }
}

void read_parameter(Reader& r, std::string_view key, const Path& path) {
  const auto* const renamed =
      std::ranges::find(kRenamed, key, &decltype(kRenamed)::value_type::first);
  if (renamed != kRenamed.end()) {
    const bool given = r.in.peek() != json::Kind::kNull;
    r.has_sampling = r.has_sampling || (given && (key == "temperature" || key.starts_with("top_")));
    api::read_generate_field(r.common, renamed->second, path);
  } else if (key == "do_sample") {
    r.samples = r.in.boolean(path);
  } else if (key == "details") {
    r.echo.details = r.in.boolean(path).value_or(false);
  } else if (key == "return_full_text") {
    r.full_text = r.in.boolean(path).value_or(false);
  } else if (key == "top_n_tokens") {
    r.top_tokens = r.in.integer<uint32_t>(path, 0, api::kMaxTopLogprobs).value_or(0);
  } else if (key == "grammar") {
    read_grammar(r, path);
  } else if (key == "best_of") {
    read_one(r, key, path);
  } else if (key == "watermark" || key == "decoder_input_details") {
    refuse_true(r, path);
  } else {
    api::ignore_field(r.in, r.common.options.ignored_fields, key);
  }
}

void read_field(Reader& r, std::string_view key, const Path& path) {
  api::ChatRequest& request = r.reading.request;
  if (key == "inputs") {
    const auto text = r.in.string(path);
    r.has_prompt = text && !text->empty();
    request.chat.last_user_text = text.value_or("");
    request.options.nvext.use_raw_prompt = true;
  } else if (key == "parameters") {
    r.in.object(
        path, [&](std::string_view name, const Path& member) { read_parameter(r, name, member); });
  } else if ((key != "model" && key != "stream") ||
             !api::read_generate_field(r.common, key, path)) {
    api::ignore_field(r.in, r.common.options.ignored_fields, key);
  }
}

api::ApiStatus read_body(FieldReader& in, Reading& reading, const api::ParseLimits& limits) {
  api::GenerateOptions& options = reading.request.options;
  auto echo = std::make_shared<TgiEcho>();
  Reader r{.common = {.in = in, .limits = limits, .options = options},
           .reading = reading,
           .in = in,
           .echo = *echo};
  in.object(Path(""), [&](std::string_view key, const Path& path) { read_field(r, key, path); });
  STATOR_CHECK(in.finish());
  if (!r.has_prompt) {
    in.violation(Path("inputs"), "is required, and must be a text that is not empty",
                 Rank::kRequired);
  }
  api::finish_generate_options(r.common);
  options.max_tokens = options.max_tokens.value_or(kMaxNewTokensDefault);
  options.sampling.logprobs = r.top_tokens;  // every token's own is told
  if (!r.samples.value_or(r.has_sampling)) {
    options.sampling.temperature = 0;
  }
  echo->top_tokens = r.top_tokens > 0;
  if (r.full_text) {
    echo->prompt = reading.request.chat.last_user_text;
  }
  reading.echo = std::move(echo);
  reading.protocol = &kTgi;
  return in.verdict();
}

// ---- answers

std::string_view finish_name(api::ChoiceFinish finish, bool by_string) {
  if (finish == api::ChoiceFinish::kLength) {
    return "length";
  }
  return by_string ? "stop_sequence" : "eos_token";
}

const TgiEcho& echo_of(const AnswerHead& head) {
  return static_cast<const TgiEcho&>(*head.echo);
}

/// A token and the text that became certain with it.
void write_token(json::Writer& json, const inference::TokenLogprob& token, std::string_view text) {
  json.begin_object().key("id").value(token.token).key("text").value(text);
  json.key("logprob").value(token.logprob).key("special").value(false).end_object();
}

void write_top_tokens(json::Writer& json, const inference::TokenLogprobs& token) {
  json.begin_array();
  for (const inference::TokenLogprob& top : token.top) {
    write_token(json, top, "");
  }
  json.end_array();
}

void write_finish(json::Writer& json, const Output& output) {
  json.key("finish_reason");
  json.value(finish_name(output.finish(), output.stop_string().has_value()));
  json.key("generated_tokens").value(output.tokens().size()).key("seed").null();
}

std::string_view text_of(const Output& output) {
  return output.items().empty() ? std::string_view() : output.items().front().text;
}

/// Events have one token each. Text is with the token after which it became certain; of tokens that
/// came together, with the last of them.
class Writer final : public StreamWriter {
 public:
  explicit Writer(AnswerHead head) : head_(std::move(head)) {}

  void begin(std::string& /*out*/, const api::Usage& usage) override {
    prompt_tokens_ = usage.prompt_tokens;
  }
  void add(std::string& out, const Piece& piece) override {
    output_.add(piece);
    text_ += piece.text;
    const bool finishes = piece.finish != api::ChoiceFinish::kNone;
    for (size_t i = 0; i < piece.tokens.size(); ++i) {
      const bool last = i + 1 == piece.tokens.size();
      inference::TokenLogprobs token;
      token.sampled.token = piece.tokens[i];
      if (i < piece.token_logprobs.size()) {
        token = piece.token_logprobs[i];
      }
      append_event(out, token, last, finishes && last);
    }
    if (finishes && piece.tokens.empty()) {
      append_event(out, {}, true, true);
    }
  }
  void finish(std::string& /*out*/, const Ending& /*ending*/) override {}
  void fail(std::string& out, const Failure& failure) override {
    out += "data:";
    json::Writer json(out);
    json.begin_object().key("error").value(failure.message);
    json.key("error_type").value("generation").end_object();
    out += "\n\n";
  }
  void keep_alive(std::string& out) override { out += ":\n\n"; }

 private:
  void append_event(std::string& out, const inference::TokenLogprobs& token, bool with_text,
                    bool ends) {
    out += "data:";
    json::Writer json(out);
    json.begin_object().key("index").value(++index_).key("token");
    write_token(json, token.sampled, with_text ? std::string_view(text_) : std::string_view());
    if (with_text) {
      text_.clear();
    }
    if (echo_of(head_).top_tokens) {
      write_top_tokens(json.key("top_tokens"), token);
    }
    json.key("generated_text");
    if (ends) {
      json.value(echo_of(head_).prompt + std::string(text_of(output_)));
      json.key("details").begin_object();
      write_finish(json, output_);
      json.key("input_length").value(prompt_tokens_).end_object();
    } else {
      json.null().key("details").null();
    }
    json.end_object();
    out += "\n\n";
  }

  const AnswerHead head_;
  Output output_;     // bounded by max_tokens
  std::string text_;  // that no event had yet
  uint32_t prompt_tokens_ = 0;
  uint32_t index_ = 0;
};

void append_body(std::string& out, const AnswerHead& head, const Output& output,
                 const Ending& /*ending*/) {
  const TgiEcho& echo = echo_of(head);
  json::Writer json(out);
  json.begin_object().key("generated_text").value(echo.prompt + std::string(text_of(output)));
  if (!echo.details) {
    json.end_object();
    return;
  }
  json.key("details").begin_object();
  write_finish(json, output);
  json.key("prefill").begin_array().end_array().key("tokens").begin_array();
  for (const inference::TokenLogprobs& token : output.token_logprobs()) {
    write_token(json, token.sampled, "");
  }
  json.end_array();
  if (echo.top_tokens) {
    json.key("top_tokens").begin_array();
    for (const inference::TokenLogprobs& token : output.token_logprobs()) {
      write_top_tokens(json, token);
    }
    json.end_array();
  }
  json.end_object().end_object();
}

}  // namespace

bool is_tgi_body(std::string_view body, uint32_t depth_max) {
  if (!body.contains("\"inputs\"")) {
    return false;
  }
  bool found = false;
  FieldReader in(body, depth_max);
  in.object(Path(""), [&](std::string_view key, const Path&) {
    found = found || key == "inputs";
    in.skip();
  });
  return found;
}

api::ApiResult<Reading> read_tgi(std::string& body, const ReadOptions& options) {
  api::ParseLimits limits = options.limits;
  limits.model_required = false;
  return api::parse_body<Reading>(
      body, limits,
      [&](FieldReader& in, Reading& reading, api::JsonRepair repair) -> api::ApiStatus {
        reading.request.options.repair = repair;
        STATOR_CHECK(read_body(in, reading, limits));
        if (options.path == "/generate_stream") {
          reading.request.options.stream = true;
        }
        return {};
      });
}

const Protocol kTgi = {
    .endpoint = "generate",
    .id_prefix = "gen-",
    .plain = true,
    .read = read_tgi,
    .make_stream_writer = [](AnswerHead head) -> std::unique_ptr<StreamWriter> {
      return std::make_unique<Writer>(std::move(head));
    },
    .append_body = append_body,
    .append_error = append_error,
};

}  // namespace stator::protocols::tokens
