// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "stator/api/detail/field_names.h"
#include "stator/api/field_table.h"
#include "stator/api/generate_reader.h"
#include "stator/api/parse_body.h"

namespace stator::api {
namespace {

struct Reader {
  GenerateReader common;
  CompletionRequest& request;
  FieldReader& in;

  bool prompt_seen = false;  // a value other than null, good or bad
};

void read_best_of(Reader& r, const Path& path) {
  r.request.best_of = r.in.integer<uint32_t>(path, 0, kMaxBestOf).value_or(0);
}
void read_echo(Reader& r, const Path& path) {
  r.request.echo = r.in.boolean(path).value_or(false);
}
void read_logprobs(Reader& r, const Path& path) {
  r.common.options.sampling.logprobs = r.in.integer<uint32_t>(path, 0, kMaxCompletionLogprobs);
}
void read_prompt_embeds(Reader& r, const Path& path) {
  if (r.in.any(path)) {
    r.in.unsupported(path, "is not supported");
  }
}

size_t count_code_points(std::string_view text) {
  const auto starts_character = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; };
  return static_cast<size_t>(std::ranges::count_if(text, starts_character));
}

void read_suffix(Reader& r, const Path& path) {
  r.request.suffix.clear();
  const auto suffix = r.in.string(path);
  if (!suffix || suffix->empty()) {
    return;
  }
  if (count_code_points(*suffix) > kMaxSuffixChars) {
    r.in.violation(path, fmt::format("must have at most {} characters", kMaxSuffixChars));
  } else {
    r.request.suffix = *suffix;
  }
}

// ---- prompt

void read_text_prompt(Reader& r, const Path& path) {
  const auto text = r.in.string(path);
  if (text && text->empty()) {
    r.in.violation(path, "must not be empty");
  } else if (text) {
    r.request.prompts.emplace_back(std::string(*text));
  }
}

void read_token_prompt(Reader& r, const Path& path) {
  auto ids = r.in.token_ids(path);
  if (ids && ids->empty()) {
    r.in.violation(path, "must not be empty");
  } else if (ids) {
    r.request.prompts.emplace_back(std::move(*ids));
  }
}

// string[], int[] or int[][]: the first element tells which.
void read_prompt_array(Reader& r, const Path& path) {
  std::vector<TokenId> flat;
  json::Kind kind = json::Kind::kInvalid;
  const bool present = r.in.array(path, [&](size_t index, const Path& element) {
    const json::Kind found = r.in.peek();
    kind = index == 0 ? found : kind;
    if (found != kind) {
      r.in.type_error(element, describe(kind));
    } else if (kind == json::Kind::kString) {
      read_text_prompt(r, element);
    } else if (kind == json::Kind::kArray) {
      read_token_prompt(r, element);
    } else if (kind != json::Kind::kNumber) {
      r.in.type_error(element, "a string, a token id or an array of token ids");
    } else if (const auto id = r.in.integer<TokenId>(element, 0, UINT32_MAX)) {
      flat.push_back(*id);
    }
  });
  if (present && kind == json::Kind::kInvalid) {
    r.in.violation(path, "must not be empty");
  }
  if (!flat.empty()) {
    r.request.prompts.emplace_back(std::move(flat));
  }
}

void read_prompt(Reader& r, const Path& path) {
  r.request.prompts.clear();
  r.prompt_seen = r.in.peek() != json::Kind::kNull;
  switch (r.in.peek()) {
    case json::Kind::kString:
      read_text_prompt(r, path);
      return;
    case json::Kind::kArray:
      read_prompt_array(r, path);
      return;
    case json::Kind::kNull:
      r.in.skip();
      return;
    default:
      r.in.type_error(path, "a string or an array");
  }
}

constexpr auto kFields = std::to_array<Field<Reader>>({
    {"best_of", read_best_of},
    {"echo", read_echo},
    {"logprobs", read_logprobs},
    {"prompt", read_prompt},
    {"prompt_embeds", read_prompt_embeds},
    {"suffix", read_suffix},
});
static_assert(is_sorted_table<Reader>(kFields));

// ---- rules between fields

void check_prompts(Reader& r) {
  const GenerateOptions& options = r.request.options;
  const size_t count = r.request.prompts.size();
  const Path path("prompt");
  if (!r.prompt_seen && options.nvext.token_data.empty()) {
    r.in.violation(path, "is required", Rank::kRequired);
  }
  const uint32_t choices = std::max(options.n, r.request.best_of);
  if (count * choices > kMaxChoices) {
    r.in.violation(path,
                   fmt::format("times {} must be at most {} choices, not {} x {}",
                               choices > options.n ? "best_of" : "n", kMaxChoices, count, choices));
  }
  if (count > 1 && options.nvext.wants_extra_field("completion_token_ids")) {
    r.in.violation(path,
                   "must be a single one when nvext.extra_fields asks for "
                   "completion_token_ids");
  }
  if (count > 1 && options.nvext.wants_extra_field("prompt_logprobs")) {
    r.in.violation(path, "must be a single one when nvext.extra_fields asks for prompt_logprobs");
  }
  if (count > 1 && !options.nvext.token_data.empty()) {
    r.in.violation(path, "must be a single one when nvext.token_data is given");
  }
}

void check_best_of(Reader& r) {
  const Path path("best_of");
  const GenerateOptions& options = r.request.options;
  const uint32_t best_of = r.request.best_of;
  if (best_of == 0 || best_of == options.n) {
    return;
  }
  if (best_of < options.n) {
    r.in.violation(path, fmt::format("must be at least n, {}", options.n));
  } else if (options.stream) {
    r.in.violation(path, "above n cannot be streamed: which choices are best is known at the end");
  } else if (options.sampling.temperature == 0.0F) {
    r.in.violation(path, "must be n when temperature is 0: all choices would be the same");
  } else if (options.nvext.wants_extra_field("completion_token_ids")) {
    r.in.violation(path, "must be n when nvext.extra_fields asks for completion_token_ids");
  }
}

void check_suffix(Reader& r) {
  if (!r.request.suffix.empty() && r.request.echo) {
    r.in.violation(Path("suffix"), "and echo exclude each other: the text is between the two");
  }
}

ApiStatus read_completion_request(FieldReader& in, CompletionRequest& request,
                                  const ParseLimits& limits) {
  Reader r{.common = {.in = in, .limits = limits, .options = request.options, .max_tokens_min = 0},
           .request = request,
           .in = in};
  in.object(Path(""), [&](std::string_view key, const Path& path) {
    if (!read_known<Reader>(kFields, key, r, path) && !read_generate_field(r.common, key, path)) {
      ignore_field(in, request.options.ignored_fields, key);
    }
  });
  STATOR_CHECK(in.finish());
  finish_generate_options(r.common);
  check_prompts(r);
  check_best_of(r);
  check_suffix(r);
  STATOR_CHECK(in.verdict());
  return check_token_ids(request, limits.vocab_size);
}

}  // namespace

ApiResult<CompletionRequest> parse_completion_request(std::string& body,
                                                      const ParseLimits& limits) {
  return parse_body<CompletionRequest>(
      body, limits, [&](FieldReader& in, CompletionRequest& request, JsonRepair repair) {
        request.options.repair = repair;
        return read_completion_request(in, request, limits);
      });
}

void append_completion_names(std::vector<std::string_view>& out) {
  append_names<Reader>(kFields, out);
}

}  // namespace stator::api
