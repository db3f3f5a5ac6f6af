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
#include "stator/protocols/kserve/kserve.h"
#include "stator/protocols/output.h"

namespace stator::protocols::kserve {
namespace {

using api::FieldReader;
using api::Path;
using api::Rank;

// As of /v1/completions.
constexpr uint32_t kMaxTokensDefault = 16;

struct GenerateEcho final : Echo {
  std::string id;    ///< the client's; empty: none
  bool ids = false;  ///< the answer's token ids are wanted
};

struct Reader {
  api::GenerateReader common;
  Reading& reading;
  FieldReader& in;
  bool has_prompt = false;
  bool two_prompts = false;
  std::string id = {};
  bool ids = false;
};

/// Triton's names of fields that all servers have.
constexpr auto kRenamed = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"streaming", "stream"},
    {"stop_words", "stop"},
    {"random_seed", "seed"},
});

/// Of sequences and of Triton's own scheduler: nothing here depends on them.
constexpr auto kWithoutEffect = std::to_array<std::string_view>(
    {"sequence_id", "sequence_start", "sequence_end", "binary_data_output",
     "triton_enable_empty_final_response", "exclude_input_in_output", "model_version"});

void take_text(Reader& r, const Path& path) {
  r.two_prompts = r.two_prompts || r.has_prompt;
  const auto text = r.in.string(path);
  r.has_prompt = r.has_prompt || (text.has_value() && !text->empty());
  r.reading.request.chat.last_user_text = text.value_or("");
  r.reading.request.options.nvext.use_raw_prompt = true;
}

void read_parameter(Reader& r, std::string_view key, const Path& path) {
  const auto* const renamed =
      std::ranges::find(kRenamed, key, &decltype(kRenamed)::value_type::first);
  if (key == "n" || key == "beam_width") {
    if (const auto n = r.in.integer<uint32_t>(path, 1, api::kMaxChoices); n.value_or(1) != 1) {
      r.in.violation(path, "must be 1: send one request per answer");
    }
  } else if (key == "return_token_ids") {
    r.ids = r.in.boolean(path).value_or(false);
  } else if (std::ranges::find(kWithoutEffect, key) != kWithoutEffect.end()) {
    r.in.skip();
  } else if (!api::read_generate_field(r.common, renamed == kRenamed.end() ? key : renamed->second,
                                       path)) {
    api::ignore_field(r.in, r.common.options.ignored_fields, key);
  }
}

void read_field(Reader& r, std::string_view key, const Path& path) {
  if (key == "text_input") {
    take_text(r, path);
  } else if (key == "input_ids") {
    r.two_prompts = r.two_prompts || r.has_prompt;
    auto ids = r.in.token_ids(path);
    r.has_prompt = r.has_prompt || (ids.has_value() && !ids->empty());
    r.reading.request.options.nvext.token_data = std::move(ids).value_or(std::vector<TokenId>());
    r.ids = true;
  } else if (key == "id") {
    r.id = r.in.string(path).value_or("");
  } else if (key == "parameters") {
    r.in.object(
        path, [&](std::string_view name, const Path& member) { read_parameter(r, name, member); });
  } else {
    read_parameter(r, key, path);
  }
}

api::ApiStatus check(Reader& r, const ReadOptions& options) {
  api::GenerateOptions& generate = r.common.options;
  if (!r.has_prompt) {
    r.in.violation(Path("text_input"), "is required, and must not be empty", Rank::kRequired);
  }
  if (r.two_prompts) {
    r.in.violation(Path("input_ids"), "and text_input are two prompts: send one of them");
  }
  const auto path = parse_model_path(options.path);
  if (path && generate.model.empty()) {
    generate.model = path->model;
  }
  if (path && path->verb == Verb::kGenerateStream) {
    generate.stream = true;
  } else if (path && path->verb == Verb::kGenerate && generate.stream) {
    r.in.violation(Path("stream"), "is answered at …/generate_stream");
  }
  api::finish_generate_options(r.common);
  generate.max_tokens = generate.max_tokens.value_or(kMaxTokensDefault);
  auto echo = std::make_shared<GenerateEcho>();
  echo->id = std::move(r.id);
  echo->ids = r.ids || !generate.detokenize;
  r.reading.echo = std::move(echo);
  STATOR_CHECK(r.in.verdict());
  if (path && !path->version.empty() && path->version != kModelVersion) {
    return api::ApiError(Error(Code::kNotFound, "model '" + path->model + "' has no version " +
                                                    path->version + ", only 1"));
  }
  return {};
}

api::ApiResult<Reading> read(std::string& body, const ReadOptions& options) {
  api::ParseLimits limits = options.limits;
  limits.model_required = false;
  return api::parse_body<Reading>(
      body, limits,
      [&](FieldReader& in, Reading& reading, api::JsonRepair repair) -> api::ApiStatus {
        reading.request.options.repair = repair;
        Reader r{.common = {.in = in, .limits = limits, .options = reading.request.options},
                 .reading = reading,
                 .in = in};
        in.object(Path(""),
                  [&](std::string_view key, const Path& path) { read_field(r, key, path); });
        STATOR_CHECK(in.finish());
        return check(r, options);
      });
}

// ---- answers

/// A part of the answer, or all of it.
struct Part {
  std::string_view text;
  std::span<const TokenId> tokens;
  api::ChoiceFinish finish = api::ChoiceFinish::kNone;
};

void append_object(std::string& out, const AnswerHead& head, const Part& part) {
  const auto& echo = static_cast<const GenerateEcho&>(*head.echo);
  json::Writer json(out);
  json.begin_object();
  if (!echo.id.empty()) {
    json.key("id").value(echo.id);
  }
  json.key("model_name").value(head.model).key("model_version").value(kModelVersion);
  json.key("text_output").value(part.text);
  if (part.finish != api::ChoiceFinish::kNone) {
    json.key("finish_reason").value(api::finish_reason_name(part.finish));
  }
  if (echo.ids) {
    json.key("output_ids").begin_array();
    for (const TokenId id : part.tokens) {
      json.value(id);
    }
    json.end_array();
  }
  json.end_object();
}

class Writer final : public StreamWriter {
 public:
  explicit Writer(AnswerHead head) : head_(std::move(head)) {}

  void begin(std::string& /*out*/, const api::Usage& /*usage*/) override {}
  void add(std::string& out, const Piece& piece) override {
    // Tokens whose text is held back come with the next piece that shows some.
    held_.insert(held_.end(), piece.tokens.begin(), piece.tokens.end());
    if (piece.text.empty() && piece.finish == api::ChoiceFinish::kNone) {
      return;
    }
    out += "data: ";
    append_object(out, head_, {.text = piece.text, .tokens = held_, .finish = piece.finish});
    out += "\n\n";
    held_.clear();
  }
  void finish(std::string& /*out*/, const Ending& /*ending*/) override {}
  void fail(std::string& out, const Failure& failure) override {
    out += "data: ";
    json::Writer(out).begin_object().key("error").value(failure.message).end_object();
    out += "\n\n";
  }
  void keep_alive(std::string& out) override { out += ": keep-alive\n\n"; }

 private:
  const AnswerHead head_;
  std::vector<TokenId> held_;  // bounded by max_tokens
};

void append_body(std::string& out, const AnswerHead& head, const Output& output,
                 const Ending& /*ending*/) {
  Part all{.text = {}, .tokens = output.tokens(), .finish = output.finish()};
  if (!output.items().empty()) {
    all.text = output.items().front().text;
  }
  append_object(out, head, all);
}

}  // namespace

const Protocol kProtocol = {
    .endpoint = "kserve",
    .id_prefix = "kserve-",
    // Of gRPC's RESOURCE_EXHAUSTED in HTTP's numbers.
    .overload_status = 429,
    .plain = true,
    .read = read,
    .make_stream_writer = [](AnswerHead head) -> std::unique_ptr<StreamWriter> {
      return std::make_unique<Writer>(std::move(head));
    },
    .append_body = append_body,
    .append_error = append_error,
};

}  // namespace stator::protocols::kserve
