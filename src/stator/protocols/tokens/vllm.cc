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

struct VllmEcho final : Echo {
  std::string request_id;  ///< the client's; empty: none
  bool logprobs = false;
};

struct Reader {
  api::GenerateReader common;
  Reading& reading;
  FieldReader& in;
  bool has_tokens = false;
  std::optional<uint32_t> logprobs = {};
  std::string request_id = {};
};

/// What only a server of its own kind could do.
constexpr std::array<std::string_view, 5> kRefused = {
    "features", "kv_transfer_params", "ec_transfer_params", "content_parts", "prompt_logprobs"};

bool is_refused(std::string_view key) {
  return std::ranges::find(kRefused, key) != kRefused.end();
}

void refuse(Reader& r, const Path& path) {
  if (r.in.any(path)) {
    r.in.violation(path, "is not supported here: leave it out");
  }
}

void read_sampling_field(Reader& r, std::string_view key, const Path& path) {
  if (key == "logprobs") {
    r.logprobs = r.in.integer<uint32_t>(path, 0, api::kMaxTopLogprobs);
  } else if (key == "n") {
    if (const auto n = r.in.integer<uint32_t>(path, 1, api::kMaxChoices); n.value_or(1) != 1) {
      r.in.violation(path, "must be 1: send one request per answer");
    }
  } else if (is_refused(key)) {
    refuse(r, path);
  } else if (key == "detokenize" || key == "output_kind" || key == "flat_logprobs") {
    r.in.skip();  // about text that is not sent, and shapes that there is one of
  } else if (!api::read_generate_field(r.common, key, path)) {
    api::ignore_field(r.in, r.common.options.ignored_fields, key);
  }
}

void read_field(Reader& r, std::string_view key, const Path& path) {
  api::GenerateOptions& options = r.common.options;
  if (key == "token_ids") {
    auto ids = r.in.token_ids(path);
    r.has_tokens = ids.has_value() && !ids->empty();
    options.nvext.token_data = std::move(ids).value_or(std::vector<TokenId>());
  } else if (key == "sampling_params") {
    r.in.object(path, [&](std::string_view name, const Path& member) {
      read_sampling_field(r, name, member);
    });
  } else if (key == "request_id") {
    r.request_id = r.in.string(path).value_or("");
  } else if (key == "output_mode") {
    const auto mode = r.in.string(path);
    if (mode && *mode != "tokens") {
      r.in.violation(path, "must be \"tokens\": ask /v1/completions for text");
    }
  } else if (is_refused(key)) {
    refuse(r, path);
  } else if (key != "model" && key != "stream" && key != "stream_options" && key != "cache_salt" &&
             key != "priority" && key != "nvext") {
    api::ignore_field(r.in, options.ignored_fields, key);
  } else if (!api::read_generate_field(r.common, key, path)) {
    api::ignore_field(r.in, options.ignored_fields, key);
  }
}

api::ApiStatus read_body(FieldReader& in, Reading& reading, const api::ParseLimits& limits) {
  Reader r{.common = {.in = in, .limits = limits, .options = reading.request.options},
           .reading = reading,
           .in = in};
  in.object(Path(""), [&](std::string_view key, const Path& path) { read_field(r, key, path); });
  STATOR_CHECK(in.finish());
  if (!r.has_tokens) {
    in.violation(Path("token_ids"), "is required, and must not be empty", Rank::kRequired);
  }
  api::finish_generate_options(r.common);
  api::GenerateOptions& options = reading.request.options;
  options.sampling.logprobs = r.logprobs;
  auto echo = std::make_shared<VllmEcho>();
  echo->request_id = std::move(r.request_id);
  echo->logprobs = r.logprobs.has_value();
  reading.echo = std::move(echo);
  return in.verdict();
}

api::ApiResult<Reading> read(std::string& body, const ReadOptions& options) {
  api::ParseLimits limits = options.limits;
  limits.model_required = false;
  return api::parse_body<Reading>(body, limits,
                                  [&](FieldReader& in, Reading& reading, api::JsonRepair repair) {
                                    reading.request.options.repair = repair;
                                    return read_body(in, reading, limits);
                                  });
}

// ---- answers

const VllmEcho& echo_of(const AnswerHead& head) {
  return static_cast<const VllmEcho&>(*head.echo);
}

void write_entry(json::Writer& json, const inference::TokenLogprob& entry) {
  json.key("token_id").value(entry.token).key("logprob").value(entry.logprob);
  json.key("rank").value(entry.rank);
}

void write_logprobs(json::Writer& json, std::span<const inference::TokenLogprobs> logprobs) {
  json.begin_object().key("content").begin_array();
  for (const inference::TokenLogprobs& token : logprobs) {
    json.begin_object();
    write_entry(json, token.sampled);
    json.key("top_logprobs").begin_array();
    for (const inference::TokenLogprob& top : token.top) {
      json.begin_object();
      write_entry(json, top);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

struct Chunk {
  std::span<const TokenId> ids;
  std::span<const inference::TokenLogprobs> logprobs;
  api::ChoiceFinish finish = api::ChoiceFinish::kNone;
};

void write_head(json::Writer& json, const AnswerHead& head) {
  const std::string& given = echo_of(head).request_id;
  json.key("request_id").value(given.empty() ? head.id : "generate-tokens-" + given);
}

void write_choice(json::Writer& json, const AnswerHead& head, const Chunk& chunk) {
  json.key("choices").begin_array().begin_object().key("index").value(0);
  json.key("token_ids").begin_array();
  for (const TokenId id : chunk.ids) {
    json.value(id);
  }
  json.end_array().key("logprobs");
  if (echo_of(head).logprobs) {
    write_logprobs(json, chunk.logprobs);
  } else {
    json.null();
  }
  json.key("finish_reason");
  if (chunk.finish == api::ChoiceFinish::kNone) {
    json.null();
  } else {
    json.value(api::finish_reason_name(chunk.finish));
  }
  json.end_object().end_array();
}

void write_usage(json::Writer& json, const api::Usage& usage) {
  json.key("usage").begin_object().key("prompt_tokens").value(usage.prompt_tokens);
  json.key("completion_tokens").value(usage.completion_tokens);
  json.key("total_tokens").value(usage.prompt_tokens + usage.completion_tokens);
  json.key("prompt_tokens_details").begin_object();
  json.key("cached_tokens").value(usage.cached_tokens).end_object().end_object();
}

class Writer final : public StreamWriter {
 public:
  explicit Writer(AnswerHead head) : head_(std::move(head)) {}

  void begin(std::string& /*out*/, const api::Usage& /*usage*/) override {}
  void add(std::string& out, const Piece& piece) override {
    if (piece.tokens.empty() && piece.finish == api::ChoiceFinish::kNone) {
      return;
    }
    frame(out, [&](json::Writer& json) {
      write_head(json, head_);
      write_choice(json, head_,
                   {.ids = piece.tokens, .logprobs = piece.token_logprobs, .finish = piece.finish});
    });
  }
  void finish(std::string& out, const Ending& ending) override {
    frame(out, [&](json::Writer& json) {
      write_head(json, head_);
      json.key("choices").begin_array().end_array();
      write_usage(json, ending.usage);
    });
    out += "data: [DONE]\n\n";
  }
  void fail(std::string& out, const Failure& failure) override {
    frame(out, [&](json::Writer& json) {
      json.key("error").begin_object().key("message").value(failure.message);
      json.key("code").value(failure.status).end_object();
    });
    out += "data: [DONE]\n\n";
  }
  void keep_alive(std::string& out) override { out += ": keep-alive\n\n"; }

 private:
  template <typename Body>
  static void frame(std::string& out, const Body& body) {
    out += "data: ";
    json::Writer json(out);
    json.begin_object();
    body(json);
    json.end_object();
    out += "\n\n";
  }

  const AnswerHead head_;
};

void append_body(std::string& out, const AnswerHead& head, const Output& output,
                 const Ending& ending) {
  json::Writer json(out);
  json.begin_object();
  write_head(json, head);
  write_choice(
      json, head,
      {.ids = output.tokens(), .logprobs = output.token_logprobs(), .finish = output.finish()});
  write_usage(json, ending.usage);
  json.end_object();
}

}  // namespace

void append_error(std::string& out, const api::ErrorBody& body, const api::ErrorStyle& style) {
  api::ErrorStyle plain = style;
  plain.append = {};
  api::append_error_body(out, body, plain);
}

const Protocol kVllm = {
    .endpoint = "generate",
    .id_prefix = "generate-tokens-",
    .plain = true,
    .read = read,
    .make_stream_writer = [](AnswerHead head) -> std::unique_ptr<StreamWriter> {
      return std::make_unique<Writer>(std::move(head));
    },
    .append_body = append_body,
    .append_error = append_error,
};

}  // namespace stator::protocols::tokens
