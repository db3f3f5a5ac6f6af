// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/plain_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/lab/fake_engine/json_read.h"
#include "stator/lab/fake_engine/media_prompt.h"

namespace stator::fake_engine {
namespace {

/// What an engine calls the same thing.
struct Names {
  std::string_view max_tokens;
  std::string_view min_tokens;
  std::string_view seed;
  int64_t max_tokens_default;  ///< negative: up to the context
};

Names names_of(PlainRoute route) {
  switch (route) {
    case PlainRoute::kSglangGenerate:
      return {"max_new_tokens", "min_new_tokens", "sampling_seed", 128};
    case PlainRoute::kLlamaCompletion:
      return {"n_predict", "min_tokens", "seed", -1};
    case PlainRoute::kChat:
      return {"max_tokens", "min_tokens", "seed", -1};
    case PlainRoute::kCompletions:
      break;
  }
  return {"max_tokens", "min_tokens", "seed", 16};
}

std::unexpected<PlainError> refuse(std::string message) {
  return std::unexpected(PlainError{.status = 400, .message = std::move(message)});
}

std::optional<PlainError> read_sampling(const json::Value& from, const Names& names,
                                        const PlainView& view, PlainRequest& out) {
  auto& sampling = out.spec.sampling;
  const double temperature = read_number(from, "temperature").value_or(1.0);
  if (temperature < 0) {
    return PlainError{
        .message =
            fmt::format("temperature must be a non-negative finite number, got {}.", temperature)};
  }
  sampling.temperature = static_cast<float>(temperature);
  sampling.seed = read_integer(from, names.seed);
  if (sampling.seed == -1) {
    sampling.seed.reset();
  }
  const auto* asked = find_member(from, names.max_tokens);
  if (asked != nullptr && !asked->is_number()) {
    return PlainError{.message = fmt::format("Field '{}': must be a number, not {}",
                                             names.max_tokens, json::to_text(*asked))};
  }
  auto& stop = out.spec.stop;
  const size_t prompt = out.spec.prompts.front().size();
  if (prompt >= view.max_model_len) {
    return PlainError{.message = fmt::format("The input ({} tokens) is longer than the model's "
                                             "context length ({} tokens).",
                                             prompt, view.max_model_len)};
  }
  const auto room = static_cast<int64_t>(view.max_model_len - prompt);
  int64_t tokens =
      read_integer(from, names.max_tokens)
          .value_or(read_integer(from, "max_completion_tokens").value_or(names.max_tokens_default));
  if (tokens < 0 && (tokens != -1 || out.route == PlainRoute::kSglangGenerate)) {
    return PlainError{.message =
                          fmt::format("{} must be at least 0, got {}.", names.max_tokens, tokens)};
  }
  tokens = tokens < 0 ? room : std::min(tokens, room);
  stop.max_tokens = static_cast<uint32_t>(std::max<int64_t>(tokens, 1));
  stop.min_tokens = static_cast<uint32_t>(
      std::clamp<int64_t>(read_integer(from, names.min_tokens).value_or(0), 0, stop.max_tokens));
  stop.eos_token_ids = view.model.eos_token_ids;
  stop.ignore_eos = read_flag(from, "ignore_eos");
  if (const auto* ids = find_member(from, "stop_token_ids")) {
    stop.stop_token_ids = read_ids(*ids).value_or(std::vector<TokenId>());
  }
  out.spec.stop_strings = read_texts(from, "stop");
  std::erase(out.spec.stop_strings, "");
  out.spec.skip_special = read_flag(from, "skip_special_tokens", true);
  out.spec.n = static_cast<uint32_t>(
      std::clamp<int64_t>(read_integer(from, "n").value_or(1), 1, UINT16_MAX));
  return std::nullopt;
}

/// What a constraint allows, to be said word for word.
void read_constraint(const json::Value& from, const FakeModel& model, PlainRequest& out) {
  std::optional<std::string> text;
  if (const auto regex = read_text(from, "regex")) {
    text = sample_of_regex(*regex);
  } else if (const auto* schema = find_member(from, "json_schema")) {
    text = sample_of_schema(
        schema->is_string() ? json::parse(schema->text()).value_or(json::Value()) : *schema);
  } else if (const auto* format = find_member(from, "response_format");
             format != nullptr && format->is_object()) {
    const json::Value& wanted = *format;
    const std::string type = read_text(wanted, "type").value_or("text");
    const auto* nested = find_member(wanted, "json_schema");
    const auto* inner = nested != nullptr && nested->is_object() ? find_member(*nested, "schema")
                                                                 : find_member(wanted, "schema");
    if (type == "json_object" && inner == nullptr) {
      text = "{}";
    } else if (inner != nullptr) {
      text = sample_of_schema(*inner);
    } else if (const auto pattern = read_text(wanted, "regex")) {
      text = sample_of_regex(*pattern);
    }
  }
  if (text) {
    auto ids = encode_text(model, *text, false);
    out.spec.script = ids ? std::move(*ids) : std::vector<TokenId>();
  }
}

PlainResult<std::vector<TokenId>> read_messages(const json::Value& body, const PlainView& view) {
  const auto* messages = find_member(body, "messages");
  if (messages == nullptr || !messages->is_array() || messages->elements().empty()) {
    return refuse("'messages' must be a non-empty array");
  }
  const auto* tools = find_member(body, "tools");
  json::Value conversation = *messages;
  auto media = take_media(conversation, view.model);
  if (!media) {
    return refuse(std::move(media.error()));
  }
  const std::string messages_json = json::to_text(conversation);
  const std::string tools_json = tools == nullptr ? "" : json::to_text(*tools);
  const auto text =
      render_chat(view.model, {.messages_json = messages_json, .tools_json = tools_json}, view.now);
  if (!text) {
    return refuse(text.error().message());
  }
  auto ids = encode_text(view.model, *text, false);
  if (!ids) {
    return refuse(ids.error().message());
  }
  if (auto placed = place_media(view.model, *media, *ids, nullptr); !placed) {
    return refuse(std::move(placed.error()));
  }
  return std::move(*ids);
}

/// SGLang's lists of media beside the prompt, in the order of their placeholders.
PlainResult<std::vector<FakeMedium>> read_lists(const json::Value& body, const FakeModel& model) {
  constexpr std::pair<std::string_view, inference::MediaKind> kLists[] = {
      {"image_data", inference::MediaKind::kImage},
      {"audio_data", inference::MediaKind::kAudio},
      {"video_data", inference::MediaKind::kVideo}};
  std::vector<FakeMedium> media;
  for (const auto& [name, kind] : kLists) {
    const std::vector<std::string> sources = read_texts(body, name);
    if (!sources.empty() && !model.media.has(kind)) {
      return refuse(fmt::format("this model takes no {}", to_string(kind)));
    }
    for (const std::string& source : sources) {
      auto medium = read_medium(kind, source);
      if (!medium) {
        return refuse(std::move(medium.error()));
      }
      media.push_back(std::move(*medium));
    }
  }
  return media;
}

// As real servers have it since they draw one by chance.
constexpr std::string_view kLlamaMarker = "<__media_sim__>";

/// llama.cpp's {prompt_string, multimodal_data}: a marker in the text for each medium. Which kind
/// one is, it tells by its bytes.
PlainResult<std::vector<TokenId>> read_marked_prompt(const json::Value& prompt,
                                                     const PlainView& view) {
  const std::string text = read_text(prompt, "prompt_string").value_or("");
  const std::vector<std::string> sources = read_texts(prompt, "multimodal_data");
  std::vector<TokenId> ids;
  size_t from = 0;
  size_t used = 0;
  while (true) {
    const size_t at = text.find(kLlamaMarker, from);
    auto piece = encode_text(view.model, text.substr(from, at - from), from == 0);
    if (!piece) {
      return refuse(piece.error().message());
    }
    ids.insert(ids.end(), piece->begin(), piece->end());
    if (at == std::string::npos) {
      break;
    }
    from = at + kLlamaMarker.size();
    if (used == sources.size()) {
      return refuse("number of bitmaps does not match number of markers");
    }
    auto medium = read_medium(inference::MediaKind::kImage, sources[used++]);
    if (!medium) {
      return refuse(std::move(medium.error()));
    }
    FakeModel bare;  // without placeholders: what it makes of one medium alone
    bare.first_token = view.model.first_token;
    bare.last_token = view.model.last_token;
    std::vector<TokenId> tokens;
    static_cast<void>(place_media(bare, {std::move(*medium)}, tokens, nullptr));
    ids.insert(ids.end(), tokens.begin(), tokens.end());
  }
  return used == sources.size() && view.model.media.any()
             ? PlainResult<std::vector<TokenId>>(std::move(ids))
             : refuse("number of bitmaps does not match number of markers");
}

/// Ids or text of the prompt; engines name it differently.
std::optional<PlainError> read_prompt(const PlainView& view, PlainRequest& out) {
  const bool sglang = out.route == PlainRoute::kSglangGenerate;
  if (out.route == PlainRoute::kChat) {
    auto ids = read_messages(out.body, view);
    if (!ids) {
      return ids.error();
    }
    out.spec.prompts.push_back(std::move(*ids));
    return std::nullopt;
  }
  const auto* prompt = find_member(out.body, sglang ? "input_ids" : "prompt");
  if (sglang && prompt == nullptr) {
    prompt = find_member(out.body, "text");
  }
  if (prompt != nullptr && prompt->is_string()) {
    out.prompt_text = prompt->text();
    auto ids = encode_text(view.model, out.prompt_text, true);
    if (!ids) {
      return PlainError{.message = ids.error().message()};
    }
    out.spec.prompts.push_back(std::move(*ids));
  } else if (prompt != nullptr && prompt->is_array()) {
    const json::Value::Array& elements = prompt->elements();
    if (!elements.empty() && (elements.front().is_array() || elements.front().is_string())) {
      for (const auto& element : elements) {
        auto ids =
            element.is_string()
                ? encode_text(view.model, element.text(), true)
                : Result<std::vector<TokenId>>(read_ids(element).value_or(std::vector<TokenId>()));
        if (!ids) {
          return PlainError{.message = ids.error().message()};
        }
        out.spec.prompts.push_back(std::move(*ids));
      }
    } else {
      out.spec.prompts.push_back(read_ids(*prompt).value_or(std::vector<TokenId>()));
    }
  }
  if (sglang) {
    auto media = read_lists(out.body, view.model);
    if (!media) {
      return media.error();
    }
    if (!media->empty() && !out.spec.prompts.empty()) {
      if (auto placed = place_media(view.model, *media, out.spec.prompts.front(), nullptr);
          !placed) {
        return PlainError{.message = std::move(placed.error())};
      }
    }
  } else if (prompt != nullptr && prompt->is_object() &&
             out.route == PlainRoute::kLlamaCompletion) {
    auto ids = read_marked_prompt(*prompt, view);
    if (!ids) {
      return ids.error();
    }
    out.spec.prompts.push_back(std::move(*ids));
  }
  const bool empty =
      out.spec.prompts.empty() ||
      std::ranges::any_of(out.spec.prompts, [](const auto& ids) { return ids.empty(); });
  if (empty) {
    return PlainError{.message = sglang
                                     ? "Either text, input_ids or input_embeds should be provided."
                                     : "'prompt' must be a text, a list of token ids, or a "
                                       "list of either"};
  }
  return std::nullopt;
}

void read_logprobs(const json::Value& body, PlainRequest& out) {
  auto& logprobs = out.spec.sampling.logprobs;
  switch (out.route) {
    case PlainRoute::kSglangGenerate:
      if (read_flag(body, "return_logprob")) {
        logprobs = static_cast<uint32_t>(
            std::clamp<int64_t>(read_integer(body, "top_logprobs_num").value_or(0), 0, 100));
        const int64_t from = read_integer(body, "logprob_start_len").value_or(-1);
        out.prompt_logprobs_from = from < 0 ? UINT32_MAX : static_cast<uint32_t>(from);
      }
      return;
    case PlainRoute::kLlamaCompletion:
      if (const int64_t count = read_integer(body, "n_probs").value_or(0); count > 0) {
        logprobs = static_cast<uint32_t>(std::min<int64_t>(count, 100));
      }
      return;
    case PlainRoute::kChat:
      if (read_flag(body, "logprobs")) {
        logprobs = static_cast<uint32_t>(
            std::clamp<int64_t>(read_integer(body, "top_logprobs").value_or(0), 0, 100));
      }
      return;
    case PlainRoute::kCompletions:
      if (const auto count = read_integer(body, "logprobs")) {
        logprobs = static_cast<uint32_t>(std::clamp<int64_t>(*count, 0, 100));
      }
      return;
  }
}

void read_identity(const PlainView& view, PlainRequest& out) {
  const json::Value& body = out.body;
  out.model = read_text(body, "model").value_or(std::string(view.model_name));
  out.id = read_text(body, "rid").value_or(read_text(body, "request_id").value_or(""));
  out.stream = read_flag(body, "stream");
  if (const auto* options = find_member(body, "stream_options");
      options != nullptr && options->is_object()) {
    out.include_usage = read_flag(*options, "include_usage");
  }
  out.return_tokens = read_flag(body, "return_tokens") || !read_flag(body, "detokenize", true);
  auto& spec = out.spec;
  spec.owner.cache_salt =
      read_text(body, "cache_salt").value_or(read_text(body, "extra_key").value_or(""));
  spec.owner.lora_name = read_text(body, "lora_path").value_or("");
  spec.priority = static_cast<int32_t>(
      std::clamp<int64_t>(read_integer(body, "priority").value_or(0), INT32_MIN, INT32_MAX));
  const auto rank = read_integer(body, "routed_dp_rank");
  const auto old_rank = read_integer(body, "data_parallel_rank");
  const int64_t wanted = rank.value_or(old_rank.value_or(-1));
  if (wanted >= 0 && wanted < view.dp_size) {
    spec.dp_rank = static_cast<uint32_t>(wanted);
  }
  spec.hold_back = view.dialect == Dialect::kLlamacpp ? HoldBack::kPartial
                   : view.dialect == Dialect::kSglang ? HoldBack::kNothing
                                                      : HoldBack::kStopLength;
}

}  // namespace

std::optional<TokenId> find_foreign_token(const GenerateSpec& spec, const FakeModel& model) {
  for (const auto& prompt : spec.prompts) {
    const auto found =
        std::ranges::find_if(prompt, [&](TokenId id) { return id >= model.vocab_size; });
    if (found != prompt.end()) {
      return *found;
    }
  }
  return std::nullopt;
}

PlainResult<PlainRequest> read_plain_request(PlainRoute route, std::string_view body,
                                             const PlainView& view) {
  auto parsed = parse_body(body);
  if (!parsed.ok) {
    return refuse(fmt::format("the body is not a JSON object (byte {})", parsed.error_at));
  }
  PlainRequest out;
  out.route = route;
  out.body = std::move(parsed.object);
  read_identity(view, out);
  if (auto error = read_prompt(view, out)) {
    return std::unexpected(std::move(*error));
  }
  const json::Value* sampling = &out.body;
  const auto* nested = find_member(out.body, "sampling_params");
  const json::Value none;
  if (route == PlainRoute::kSglangGenerate) {
    sampling = nested != nullptr && nested->is_object() ? nested : &none;
  }
  if (auto error = read_sampling(*sampling, names_of(route), view, out)) {
    return std::unexpected(std::move(*error));
  }
  read_logprobs(out.body, out);
  read_constraint(*sampling, view.model, out);
  return out;
}

}  // namespace stator::fake_engine
