// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "stator/api/detail/chat_reader.h"
#include "stator/api/detail/field_names.h"
#include "stator/api/field_table.h"
#include "stator/api/generate_reader.h"
#include "stator/api/parse_body.h"

namespace stator::api {
namespace {

struct TokenizeReader {
  FieldReader& in;
  ChatInputReader input;
  TokenizeRequest& request;
  std::optional<bool> add_special_tokens = {};
};

void read_model(TokenizeReader& r, const Path& path) {
  r.request.model = r.in.string(path, Blank::kRefused).value_or("");
}
void read_prompt(TokenizeReader& r, const Path& path) {
  r.request.prompt = r.in.string(path);
}
void read_add_special_tokens(TokenizeReader& r, const Path& path) {
  r.add_special_tokens = r.in.boolean(path);
}
void read_unsupported(TokenizeReader& r, const Path& path) {
  const auto value = r.in.any(path);
  if (value && *value != "{}") {
    r.in.unsupported(path, "is not supported");
  }
}
void read_return_token_strs(TokenizeReader& r, const Path& path) {
  r.request.return_token_strs = r.in.boolean(path).value_or(false);
}

constexpr auto kTokenizeFields = std::to_array<Field<TokenizeReader>>({
    {"add_special_tokens", read_add_special_tokens},
    {"media_io_kwargs", read_unsupported},
    {"mm_processor_kwargs", read_unsupported},
    {"model", read_model},
    {"prompt", read_prompt},
    {"return_token_strs", read_return_token_strs},
});
static_assert(is_sorted_table<TokenizeReader>(kTokenizeFields));

ApiStatus read_tokenize_request(FieldReader& in, TokenizeRequest& request,
                                const ParseLimits& limits) {
  TokenizeReader r{.in = in,
                   .input = {.in = in, .chat = request.chat, .depth_max = limits.json_depth_max},
                   .request = request};
  in.object(Path(""), [&](std::string_view key, const Path& path) {
    if (!read_known<TokenizeReader>(kTokenizeFields, key, r, path) &&
        !read_chat_field(r.input, key, path)) {
      ignore_field(in, request.ignored_fields, key);
    }
  });
  STATOR_CHECK(in.finish());
  check_ignored(in, request.ignored_fields, limits);
  check_model(in, request.model, limits);
  const bool has_messages = !request.chat.messages_json.empty();
  if (request.prompt.has_value() == has_messages) {
    in.violation(Path("prompt"),
                 "or messages is required: a text as `prompt` or a chat as `messages`, not both",
                 Rank::kRequired);
  }
  finish_chat_input(r.input);
  request.add_special_tokens = r.add_special_tokens.value_or(!has_messages);
  return in.verdict();
}

ApiStatus read_detokenize_request(FieldReader& in, DetokenizeRequest& request,
                                  const ParseLimits& limits) {
  bool has_tokens = false;
  in.object(Path(""), [&](std::string_view key, const Path& path) {
    if (key == "model") {
      request.model = in.string(path, Blank::kRefused).value_or("");
    } else if (key == "tokens") {
      auto ids = in.token_ids(path);
      has_tokens = ids.has_value();
      request.tokens = std::move(ids).value_or(std::vector<TokenId>());
    } else {
      ignore_field(in, request.ignored_fields, key);
    }
  });
  STATOR_CHECK(in.finish());
  check_ignored(in, request.ignored_fields, limits);
  check_model(in, request.model, limits);
  if (!has_tokens) {
    in.violation(Path("tokens"), "is required", Rank::kRequired);
  }
  return in.verdict();
}

}  // namespace

ApiResult<TokenizeRequest> parse_tokenize_request(std::string& body, const ParseLimits& limits) {
  return parse_body<TokenizeRequest>(body, limits,
                                     [&](FieldReader& in, TokenizeRequest& request, JsonRepair) {
                                       return read_tokenize_request(in, request, limits);
                                     });
}

ApiResult<DetokenizeRequest> parse_detokenize_request(std::string& body,
                                                      const ParseLimits& limits) {
  return parse_body<DetokenizeRequest>(
      body, limits, [&](FieldReader& in, DetokenizeRequest& request, JsonRepair) {
        return read_detokenize_request(in, request, limits);
      });
}

void append_tokenize_names(std::vector<std::string_view>& out) {
  append_names<TokenizeReader>(kTokenizeFields, out);
}

}  // namespace stator::api
