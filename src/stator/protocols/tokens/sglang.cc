// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
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

// SGLang's own default.
constexpr uint32_t kMaxNewTokensDefault = 128;

struct SglangEcho final : Echo {
  std::string rid;
  bool logprobs = false;
  uint32_t max_tokens = 0;
};

struct Reader {
  api::GenerateReader common;
  Reading& reading;
  FieldReader& in;
  bool has_prompt = false;
  bool logprobs = false;
  uint32_t top_logprobs = 0;
  std::string rid = {};
};

/// SGLang's names of fields that all servers have.
constexpr auto kRenamed = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"max_new_tokens", "max_tokens"},
    {"min_new_tokens", "min_tokens"},
    {"no_stop_trim", "include_stop_str_in_output"},
    {"sampling_seed", "seed"},
    {"json_schema", "guided_json"},
    {"regex", "guided_regex"},
    {"ebnf", "guided_grammar"},
});

void refuse(Reader& r, const Path& path) {
  if (r.in.any(path)) {
    r.in.violation(path, "is not supported here: leave it out");
  }
}

void read_sampling_field(Reader& r, std::string_view key, const Path& path) {
  const auto* const renamed =
      std::ranges::find(kRenamed, key, &decltype(kRenamed)::value_type::first);
  if (key == "n") {
    if (const auto n = r.in.integer<uint32_t>(path, 1, api::kMaxChoices); n.value_or(1) != 1) {
      r.in.violation(path, "must be 1: send one request per answer");
    }
  } else if (key == "spaces_between_special_tokens") {
    r.in.skip();
  } else if (!api::read_generate_field(r.common, renamed == kRenamed.end() ? key : renamed->second,
                                       path)) {
    api::ignore_field(r.in, r.common.options.ignored_fields, key);
  }
}

void read_prompt(Reader& r, std::string_view key, const Path& path) {
  api::ChatRequest& request = r.reading.request;
  if (key == "input_ids") {
    auto ids = r.in.token_ids(path);
    r.has_prompt = r.has_prompt || (ids.has_value() && !ids->empty());
    request.options.nvext.token_data = std::move(ids).value_or(std::vector<TokenId>());
    return;
  }
  if (const auto text = r.in.string(path)) {
    r.has_prompt = r.has_prompt || !text->empty();
    request.chat.last_user_text = *text;
    request.options.nvext.use_raw_prompt = true;
  }
}

void read_field(Reader& r, std::string_view key, const Path& path) {
  constexpr std::array<std::string_view, 8> kRefused = {"image_data",
                                                        "video_data",
                                                        "audio_data",
                                                        "input_embeds",
                                                        "bootstrap_host",
                                                        "bootstrap_room",
                                                        "custom_logit_processor",
                                                        "return_hidden_states"};
  if (key == "input_ids" || key == "text") {
    read_prompt(r, key, path);
  } else if (key == "sampling_params") {
    r.in.object(path, [&](std::string_view name, const Path& member) {
      read_sampling_field(r, name, member);
    });
  } else if (key == "return_logprob") {
    r.logprobs = r.in.boolean(path).value_or(false);
  } else if (key == "top_logprobs_num") {
    r.top_logprobs = r.in.integer<uint32_t>(path, 0, api::kMaxTopLogprobs).value_or(0);
  } else if (key == "logprob_start_len") {
    if (const auto start = r.in.integer<int64_t>(path, -1, INT32_MAX); start.value_or(-1) != -1) {
      r.in.violation(path, "must be -1: prompts' log-probabilities are not reported here");
    }
  } else if (key == "rid") {
    r.rid = r.in.string(path).value_or("");
  } else if (key == "lora_path") {
    r.common.options.model = r.in.string(path).value_or("");
  } else if (std::ranges::find(kRefused, key) != kRefused.end()) {
    refuse(r, path);
  } else if ((key != "model" && key != "stream" && key != "nvext") ||
             !api::read_generate_field(r.common, key, path)) {
    api::ignore_field(r.in, r.common.options.ignored_fields, key);
  }
}

api::ApiStatus read_body(FieldReader& in, Reading& reading, const api::ParseLimits& limits) {
  api::GenerateOptions& options = reading.request.options;
  Reader r{
      .common = {.in = in, .limits = limits, .options = options}, .reading = reading, .in = in};
  in.object(Path(""), [&](std::string_view key, const Path& path) { read_field(r, key, path); });
  STATOR_CHECK(in.finish());
  if (!r.has_prompt) {
    in.violation(Path("input_ids"), "or text is required, and must not be empty", Rank::kRequired);
  }
  api::finish_generate_options(r.common);
  options.max_tokens = options.max_tokens.value_or(kMaxNewTokensDefault);
  if (r.logprobs) {
    options.sampling.logprobs = r.top_logprobs;
  }
  auto echo = std::make_shared<SglangEcho>();
  echo->rid = std::move(r.rid);
  echo->logprobs = r.logprobs;
  echo->max_tokens = *options.max_tokens;
  reading.echo = std::move(echo);
  return in.verdict();
}

api::ApiResult<Reading> read(std::string& body, const ReadOptions& options) {
  if (is_tgi_body(body, options.limits.json_depth_max)) {
    return read_tgi(body, options);
  }
  api::ParseLimits limits = options.limits;
  limits.model_required = false;
  return api::parse_body<Reading>(body, limits,
                                  [&](FieldReader& in, Reading& reading, api::JsonRepair repair) {
                                    reading.request.options.repair = repair;
                                    return read_body(in, reading, limits);
                                  });
}

// ---- answers

/// Everything so far: SGLang's streams repeat it with each event.
struct Sofar {
  std::string_view text;
  std::span<const TokenId> ids;
  std::span<const inference::TokenLogprobs> logprobs;
  api::ChoiceFinish finish = api::ChoiceFinish::kNone;
  std::optional<std::string_view> stop_string;
  api::Usage usage;
};

void write_finish(json::Writer& json, const Sofar& sofar, const SglangEcho& echo) {
  json.key("finish_reason");
  if (sofar.finish == api::ChoiceFinish::kNone) {
    json.null();
    return;
  }
  json.begin_object().key("type").value(api::finish_reason_name(sofar.finish));
  if (sofar.finish == api::ChoiceFinish::kLength) {
    json.key("length").value(echo.max_tokens);
  } else if (sofar.stop_string) {
    json.key("matched").value(*sofar.stop_string);
  } else if (!sofar.ids.empty()) {
    json.key("matched").value(sofar.ids.back());
  }
  json.end_object();
}

void write_triple(json::Writer& json, const inference::TokenLogprob& entry) {
  json.begin_array().value(entry.logprob).value(entry.token).null().end_array();
}

void write_logprobs(json::Writer& json, std::span<const inference::TokenLogprobs> logprobs) {
  json.key("output_token_logprobs").begin_array();
  for (const inference::TokenLogprobs& token : logprobs) {
    write_triple(json, token.sampled);
  }
  json.end_array().key("output_top_logprobs").begin_array();
  for (const inference::TokenLogprobs& token : logprobs) {
    json.begin_array();
    for (const inference::TokenLogprob& top : token.top) {
      write_triple(json, top);
    }
    json.end_array();
  }
  json.end_array();
}

void append_object(std::string& out, const AnswerHead& head, const Sofar& sofar) {
  const auto& echo = static_cast<const SglangEcho&>(*head.echo);
  json::Writer json(out);
  json.begin_object().key("text").value(sofar.text);
  json.key("output_ids").begin_array();
  for (const TokenId id : sofar.ids) {
    json.value(id);
  }
  json.end_array().key("meta_info").begin_object();
  json.key("id").value(echo.rid.empty() ? std::string_view(head.id) : std::string_view(echo.rid));
  write_finish(json, sofar, echo);
  json.key("prompt_tokens").value(sofar.usage.prompt_tokens);
  json.key("completion_tokens").value(sofar.ids.size());
  json.key("cached_tokens").value(sofar.usage.cached_tokens);
  if (echo.logprobs) {
    write_logprobs(json, sofar.logprobs);
  }
  json.end_object().end_object();
}

class Writer final : public StreamWriter {
 public:
  explicit Writer(AnswerHead head) : head_(std::move(head)) {}

  void begin(std::string& /*out*/, const api::Usage& usage) override { usage_ = usage; }
  void add(std::string& out, const Piece& piece) override {
    output_.add(piece);
    finished_ = piece.finish != api::ChoiceFinish::kNone;
    if (piece.tokens.empty() && !finished_) {
      return;
    }
    out += "data: ";
    append_object(out, head_, sofar());
    out += "\n\n";
  }
  void finish(std::string& out, const Ending& /*ending*/) override { out += "data: [DONE]\n\n"; }
  void fail(std::string& out, const Failure& failure) override {
    out += "data: ";
    json::Writer json(out);
    json.begin_object().key("error").begin_object().key("message").value(failure.message);
    json.key("code").value(failure.status).end_object().end_object();
    out += "\n\ndata: [DONE]\n\n";
  }
  void keep_alive(std::string& out) override { out += ": keep-alive\n\n"; }

 private:
  Sofar sofar() const {
    Sofar all{.ids = output_.tokens(), .logprobs = output_.token_logprobs(), .usage = usage_};
    if (!output_.items().empty()) {
      all.text = output_.items().front().text;
    }
    if (finished_) {
      all.finish = output_.finish();
      all.stop_string = output_.stop_string();
    }
    return all;
  }

  const AnswerHead head_;
  Output output_;  // bounded by max_tokens
  api::Usage usage_;
  bool finished_ = false;
};

void append_body(std::string& out, const AnswerHead& head, const Output& output,
                 const Ending& ending) {
  Sofar all{.ids = output.tokens(),
            .logprobs = output.token_logprobs(),
            .finish = output.finish(),
            .stop_string = output.stop_string(),
            .usage = ending.usage};
  if (!output.items().empty()) {
    all.text = output.items().front().text;
  }
  append_object(out, head, all);
}

}  // namespace

const Protocol kSglang = {
    .endpoint = "generate",
    .id_prefix = "gen-",
    .plain = true,
    .read = read,
    .make_stream_writer = [](AnswerHead head) -> std::unique_ptr<StreamWriter> {
      return std::make_unique<Writer>(std::move(head));
    },
    .append_body = append_body,
    .append_error = append_error,
};

}  // namespace stator::protocols::tokens
