// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/vllm_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "stator/core/hash.h"
#include "stator/lab/fake_engine/json_read.h"
#include "stator/lab/fake_engine/media_prompt.h"

namespace stator::fake_engine {
namespace {

constexpr uint32_t kLogprobsMax = 20;
constexpr uint32_t kCompletionTokensDefault = 16;

std::unexpected<VllmError> refuse(std::string message, std::string param = {}) {
  return std::unexpected(VllmError{.message = std::move(message), .param = std::move(param)});
}

/// A value error: the message repeats the parameter.
std::unexpected<VllmError> refuse_value(std::string_view message, const std::string& param,
                                        std::string_view value) {
  return refuse(fmt::format("{} (parameter={}, value={})", message, param, value), param);
}

/// One finding of pydantic's.
std::unexpected<VllmError> refuse_type(std::string_view type, const std::string& place,
                                       std::string_view message, std::string_view input) {
  return std::unexpected(VllmError{
      .message = fmt::format("1 validation error:\n  {{'type': '{}', 'loc': '{}', 'msg': '{}', "
                             "'input': '{}'}}",
                             type, place, message, input),
      .type = "Bad Request",
      .param = place});
}

std::string spell_float(double value) {
  return value == static_cast<double>(static_cast<int64_t>(value)) ? fmt::format("{:.1f}", value)
                                                                   : fmt::format("{}", value);
}

/// Whole numbers and numbers must be such; strings that spell one are accepted, as pydantic does.
VllmResult<std::optional<int64_t>> whole(const json::Value& body, std::string_view key) {
  const auto* value = find_member(body, key);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (const auto number = read_integer(body, key)) {
    return number;
  }
  const std::string place = fmt::format("body.{}", key);
  if (value->is_string()) {
    const std::string_view text = value->text();
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) {
      return number;
    }
    return refuse_type("int_parsing", place,
                       "Input should be a valid integer, unable to parse string as an integer",
                       text);
  }
  return refuse_type("int_type", place, "Input should be a valid integer", json::to_text(*value));
}

VllmResult<std::optional<double>> real(const json::Value& body, std::string_view key) {
  const auto* value = find_member(body, key);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (const auto number = read_number(body, key)) {
    return number;
  }
  return refuse_type("float_type", fmt::format("body.{}", key), "Input should be a valid number",
                     json::to_text(*value));
}

#define FAKE_TRY(target, expression)                               \
  auto STATOR_CONCAT(got_, __LINE__) = (expression);               \
  if (!STATOR_CONCAT(got_, __LINE__)) {                            \
    return std::unexpected(STATOR_CONCAT(got_, __LINE__).error()); \
  }                                                                \
  target = std::move(*STATOR_CONCAT(got_, __LINE__))

std::optional<VllmError> read_range(const json::Value& body, std::string_view key, double low,
                                    double high, float& into) {
  const auto value = real(body, key);
  if (!value) {
    return value.error();
  }
  if (!*value) {
    return std::nullopt;
  }
  if (**value < low || **value > high) {
    return refuse_value(fmt::format("{} must be in [{}, {}], got {}.", key, low, high, **value),
                        std::string(key), fmt::format("{}", **value))
        .error();
  }
  into = static_cast<float>(**value);
  return std::nullopt;
}

std::optional<VllmError> read_penalties(const json::Value& body, inference::SamplingParams& out) {
  for (auto error : {read_range(body, "presence_penalty", -2, 2, out.presence_penalty),
                     read_range(body, "frequency_penalty", -2, 2, out.frequency_penalty),
                     read_range(body, "min_p", 0, 1, out.min_p)}) {
    if (error) {
      return error;
    }
  }
  return std::nullopt;
}

std::optional<VllmError> read_sampling(const json::Value& body, inference::SamplingParams& out) {
  const auto temperature = real(body, "temperature");
  if (!temperature) {
    return temperature.error();
  }
  if (*temperature && **temperature < 0) {
    const std::string value = spell_float(**temperature);
    return refuse_value(fmt::format("temperature must be non-negative, got {}.", value),
                        "temperature", value)
        .error();
  }
  out.temperature = static_cast<float>(temperature->value_or(1.0));
  const auto top_p = real(body, "top_p");
  if (!top_p) {
    return top_p.error();
  }
  if (*top_p && (**top_p <= 0 || **top_p > 1)) {
    const std::string value = spell_float(**top_p);
    return refuse_value(fmt::format("top_p must be in (0, 1], got {}.", value), "top_p", value)
        .error();
  }
  out.top_p = static_cast<float>(top_p->value_or(1.0));
  const auto seed = whole(body, "seed");
  if (!seed) {
    return seed.error();
  }
  out.seed = *seed;
  if (const auto* ids = find_member(body, "allowed_token_ids")) {
    out.allowed_token_ids = read_ids(*ids).value_or(std::vector<TokenId>());
  }
  out.bad_words = read_texts(body, "bad_words");
  return read_penalties(body, out);
}

std::optional<VllmError> read_logprobs(const json::Value& body, VllmRequest& out) {
  if (out.route == VllmRoute::kChat) {
    if (read_flag(body, "logprobs")) {
      out.spec.sampling.logprobs =
          static_cast<uint32_t>(read_integer(body, "top_logprobs").value_or(0));
    }
  } else {
    const auto logprobs = whole(body, "logprobs");
    if (!logprobs) {
      return logprobs.error();
    }
    if (*logprobs) {
      out.spec.sampling.logprobs = static_cast<uint32_t>(std::max<int64_t>(**logprobs, 0));
    }
  }
  if (out.spec.sampling.logprobs.value_or(0) > kLogprobsMax) {
    const uint32_t asked = *out.spec.sampling.logprobs;
    return refuse_value(fmt::format("Requested sample logprobs of {}, which is greater than max "
                                    "allowed: {}",
                                    asked, kLogprobsMax),
                        "logprobs", std::to_string(asked))
        .error();
  }
  if (const auto prompt = read_integer(body, "prompt_logprobs"); prompt && *prompt >= 0) {
    out.prompt_logprobs = static_cast<uint32_t>(*prompt);
  }
  return std::nullopt;
}

std::optional<VllmError> read_stops(const json::Value& body, const FakeModel& model,
                                    GenerateSpec& spec) {
  spec.stop_strings = read_texts(body, "stop");
  if (std::ranges::find(spec.stop_strings, "") != spec.stop_strings.end()) {
    return refuse("stop cannot contain an empty string.").error();
  }
  if (const auto* ids = find_member(body, "stop_token_ids")) {
    spec.stop.stop_token_ids = read_ids(*ids).value_or(std::vector<TokenId>());
  }
  spec.stop.eos_token_ids = model.eos_token_ids;
  spec.stop.ignore_eos = read_flag(body, "ignore_eos");
  spec.include_stop = read_flag(body, "include_stop_str_in_output");
  spec.skip_special = read_flag(body, "skip_special_tokens", true);
  const int64_t min_tokens = read_integer(body, "min_tokens").value_or(0);
  if (min_tokens < 0) {
    return refuse_value(
               fmt::format("min_tokens must be greater than or equal to 0, got {}.", min_tokens),
               "min_tokens", std::to_string(min_tokens))
        .error();
  }
  spec.stop.min_tokens = static_cast<uint32_t>(min_tokens);
  return std::nullopt;
}

std::optional<VllmError> check_lengths(const json::Value& body, const VllmModelView& view,
                                       VllmRequest& out) {
  const bool completion = out.route == VllmRoute::kCompletions;
  size_t longest = 0;
  for (const auto& prompt : out.spec.prompts) {
    longest = std::max(longest, prompt.size());
  }
  const uint32_t context = view.max_model_len;
  if (longest >= context && out.route == VllmRoute::kGenerate) {
    return refuse(fmt::format("The decoder prompt (length {}) is longer than the maximum model "
                              "length of {}. Make sure that `max_model_len` is no smaller than the "
                              "number of text tokens.",
                              longest, context))
        .error();
  }
  if (longest >= context) {
    return refuse_value(
               fmt::format("This model's maximum context length is {} tokens. However, your prompt "
                           "contains {} input tokens, which exceeds this limit even without any "
                           "output tokens. Please reduce the length of the input prompt.",
                           context, longest),
               "input_tokens", std::to_string(longest))
        .error();
  }
  auto max_tokens = whole(body, "max_tokens");
  if (!max_tokens) {
    return max_tokens.error();
  }
  if (!*max_tokens && out.route == VllmRoute::kChat) {
    *max_tokens = read_integer(body, "max_completion_tokens");
  }
  const auto room = static_cast<int64_t>(context - longest);
  const int64_t asked = max_tokens->value_or(completion ? kCompletionTokensDefault : room);
  if (asked < 1) {
    return refuse_value(fmt::format("max_tokens must be at least 1, got {}.", asked), "max_tokens",
                        std::to_string(asked))
        .error();
  }
  if (asked > context) {
    return refuse_value(fmt::format("max_tokens={} cannot be greater than max_model_len={}. Please "
                                    "request fewer output tokens.",
                                    asked, context),
                        "max_tokens", std::to_string(asked))
        .error();
  }
  if (asked > room && *max_tokens) {
    return refuse_value(
               fmt::format("This model's maximum context length is {} tokens. However, you "
                           "requested {} output tokens and your prompt contains {} input tokens, "
                           "for a total of {} tokens. Please reduce the length of the input prompt "
                           "or the number of requested output tokens.",
                           context, asked, longest, static_cast<int64_t>(longest) + asked),
               "input_tokens", std::to_string(longest))
        .error();
  }
  out.spec.stop.max_tokens = static_cast<uint32_t>(std::min(asked, room));
  out.spec.stop.min_tokens = std::min(out.spec.stop.min_tokens, out.spec.stop.max_tokens);
  return std::nullopt;
}

std::optional<VllmError> check_tokens(const GenerateSpec& spec, const FakeModel& model) {
  for (const auto& prompt : spec.prompts) {
    for (const TokenId token : prompt) {
      if (token >= model.vocab_size) {
        return refuse(fmt::format("Token id {} is out of vocabulary", token)).error();
      }
    }
  }
  return std::nullopt;
}

VllmError negative_token(size_t index, int64_t value) {
  const std::string place = fmt::format("body.prompt.{}", index);
  return refuse_type("greater_than_equal", place, "Input should be greater than or equal to 0",
                     std::to_string(value))
      .error();
}

/// `prompt` of a completion: a text, ids, or a list of either.
std::optional<VllmError> read_prompts(const json::Value& body, const FakeModel& model,
                                      VllmRequest& out) {
  const auto* prompt = find_member(body, "prompt");
  const auto add_text = [&](std::string_view text) {
    auto ids = encode_text(model, text, read_flag(body, "add_special_tokens", true));
    out.spec.prompts.push_back(ids ? std::move(*ids) : std::vector<TokenId>());
    out.prompt_texts.emplace_back(text);
  };
  if (prompt != nullptr && prompt->is_string() && !prompt->text().empty()) {
    add_text(prompt->text());
    return std::nullopt;
  }
  if (prompt == nullptr || !prompt->is_array() || prompt->elements().empty()) {
    return refuse("You must pass at least one prompt").error();
  }
  const json::Value::Array& elements = prompt->elements();
  if (elements.front().is_number()) {
    auto ids = read_ids(*prompt);
    for (size_t i = 0; !ids && i < elements.size(); ++i) {
      if (const auto number = elements[i].as_int64(); number && *number < 0) {
        return negative_token(i, *number);
      }
    }
    if (!ids) {
      return refuse_type("int_type", "body.prompt", "Input should be a valid integer", "list")
          .error();
    }
    out.spec.prompts.push_back(std::move(*ids));
    return std::nullopt;
  }
  for (const auto& element : elements) {
    if (element.is_string()) {
      add_text(element.text());
      continue;
    }
    auto ids = read_ids(element);
    if (!ids || ids->empty()) {
      return refuse("You must pass at least one prompt").error();
    }
    out.spec.prompts.push_back(std::move(*ids));
  }
  return std::nullopt;
}

/// The first of the tools, or the named one, and arguments that its schema allows.
std::optional<VllmError> plan_tools(const json::Value& body, const FakeModel& model,
                                    VllmRequest& out) {
  const auto* tools = find_member(body, "tools");
  const auto* choice = find_member(body, "tool_choice");
  if (tools == nullptr || !tools->is_array() || tools->elements().empty() || choice == nullptr) {
    return std::nullopt;
  }
  const bool required = choice->is_string() && choice->text() == "required";
  std::string wanted;
  if (choice->is_object()) {
    if (const auto* function = find_member(*choice, "function");
        function != nullptr && function->is_object()) {
      wanted = read_text(*function, "name").value_or("");
    }
  } else if (!required) {
    return std::nullopt;
  }
  for (const auto& tool : tools->elements()) {
    const auto* function = tool.is_object() ? find_member(tool, "function") : nullptr;
    if (function == nullptr || !function->is_object()) {
      continue;
    }
    const auto name = read_text(*function, "name").value_or("");
    if (!required && name != wanted) {
      continue;
    }
    const auto* schema = find_member(*function, "parameters");
    const std::string arguments = schema == nullptr ? "{}" : sample_of_schema(*schema);
    auto ids = encode_text(model, arguments, false);
    out.spec.script = ids ? std::move(*ids) : std::vector<TokenId>();
    out.tools = {.mode = required ? VllmToolPlan::Mode::kRequired : VllmToolPlan::Mode::kNamed,
                 .function = name};
    return std::nullopt;
  }
  return refuse(fmt::format("The tool specified in `tool_choice` does not match any of the "
                            "specified `tools`"))
      .error();
}

/// What OpenAI's `response_format` allows, if it asks for anything but text.
std::optional<std::string> sample_of_format(const json::Value& body) {
  const auto* format = find_member(body, "response_format");
  if (format == nullptr || !format->is_object()) {
    return std::nullopt;
  }
  const std::string type = read_text(*format, "type").value_or("text");
  if (type == "json_object") {
    return "{}";
  }
  const auto* nested = find_member(*format, "json_schema");
  if (type != "json_schema" || nested == nullptr || !nested->is_object()) {
    return std::nullopt;
  }
  const auto* schema = find_member(*nested, "schema");
  return schema == nullptr ? std::nullopt : std::optional(sample_of_schema(*schema));
}

void say_word_for_word(const std::string& text, const FakeModel& model, VllmRequest& out) {
  auto ids = encode_text(model, text, false);
  out.spec.script = ids ? std::move(*ids) : std::vector<TokenId>();
}

/// Answers that a constraint of `structured_outputs` or `response_format` allows, said word for
/// word.
std::optional<VllmError> plan_structure(const json::Value& body, const FakeModel& model,
                                        VllmRequest& out) {
  const auto* member = find_member(body, "structured_outputs");
  if (member == nullptr || !member->is_object()) {
    if (const auto text = sample_of_format(body)) {
      say_word_for_word(*text, model, out);
    }
    return std::nullopt;
  }
  const json::Value& wanted = *member;
  size_t kinds = 0;
  for (const std::string_view kind :
       {"json", "regex", "choice", "grammar", "json_object", "structural_tag"}) {
    kinds += find_member(wanted, kind) != nullptr ? 1 : 0;
  }
  if (kinds > 1) {
    return VllmError{.message =
                         "You can only use one kind of constraints for structured outputs "
                         "('json', 'regex' or 'choice'). (parameter=structured_outputs)",
                     .param = "structured_outputs"};
  }
  std::optional<std::string> text;
  if (const auto choices = read_texts(wanted, "choice"); !choices.empty()) {
    text = choices[out.spec.prompts.front().size() % choices.size()];
  } else if (const auto* schema = find_member(wanted, "json")) {
    text = sample_of_schema(
        schema->is_string() ? json::parse(schema->text()).value_or(json::Value()) : *schema);
  } else if (const auto regex = read_text(wanted, "regex")) {
    text = sample_of_regex(*regex);
  } else if (find_member(wanted, "json_object") != nullptr) {
    text = "{}";
  } else if (const auto grammar = read_text(wanted, "grammar");
             grammar && std::ranges::count(*grammar, '(') != std::ranges::count(*grammar, ')')) {
    return refuse(fmt::format("Invalid grammar specification: Failed to convert the grammar from "
                              "GBNF to Lark: Expected ')' at line 1, '{}' ^ ''",
                              *grammar))
        .error();
  }
  if (!text) {
    return std::nullopt;  // an engine's grammar is not ours to run: free text
  }
  say_word_for_word(*text, model, out);
  return std::nullopt;
}

VllmResult<std::optional<uint32_t>> read_dp_rank(const VllmHeaders& headers, uint32_t dp_size) {
  if (!headers.dp_rank) {
    return std::nullopt;
  }
  int64_t rank = -1;
  std::from_chars(headers.dp_rank->data(), headers.dp_rank->data() + headers.dp_rank->size(), rank);
  if (rank < 0 || rank >= dp_size) {
    return refuse(
        fmt::format("data_parallel_rank {} is out of range [0, {}).", *headers.dp_rank, dp_size));
  }
  return static_cast<uint32_t>(rank);
}

void read_identity(const json::Value& body, const VllmHeaders& headers, VllmRequest& out) {
  out.request_id = read_text(body, "request_id").value_or("");
  out.spec.owner.cache_salt = read_text(body, "cache_salt").value_or("");
  out.spec.owner.session_id =
      read_text(body, "session_id").value_or(std::string(headers.session_id.value_or("")));
  out.spec.priority = -static_cast<int32_t>(
      std::clamp<int64_t>(read_integer(body, "priority").value_or(0), -INT32_MAX, INT32_MAX));
  if (const auto* arguments = find_member(body, "vllm_xargs");
      arguments != nullptr && arguments->is_object()) {
    out.spec.announce_hits = read_text(*arguments, "kv_cache_report_mode").value_or("") == "full";
  }
  if (const auto* transfer = find_member(body, "kv_transfer_params");
      transfer != nullptr && transfer->is_object()) {
    out.kv_transfer = *transfer;
  }
}

void read_output_options(const json::Value& body, VllmRequest& out) {
  out.stream = read_flag(body, "stream");
  if (const auto* options = find_member(body, "stream_options");
      options != nullptr && options->is_object()) {
    out.include_usage = read_flag(*options, "include_usage");
    out.continuous_usage = read_flag(*options, "continuous_usage_stats");
  }
  out.return_token_ids = read_flag(body, "return_token_ids");
  out.echo = read_flag(body, "echo");
  out.tokens_as_ids = read_flag(body, "return_tokens_as_token_ids");
  out.text_output = read_text(body, "output_mode").value_or("tokens") == "text";
  out.spec.stream_interval = static_cast<uint32_t>(
      std::clamp<int64_t>(read_integer(body, "stream_interval").value_or(1), 1, 1'000'000));
}

std::optional<VllmError> check_model(const VllmRequest& request, const VllmModelView& view) {
  if (request.model.empty() || std::ranges::find(view.names, request.model) != view.names.end()) {
    return std::nullopt;
  }
  return VllmError{.status = 404,
                   .message = fmt::format("The model `{}` does not exist. Valid aliases: {}.",
                                          request.model, view.names.front()),
                   .type = "NotFoundError",
                   .param = "model"};
}

/// Prompt and the members that say how to sample; for /inference/v1/generate they are nested.
std::optional<VllmError> read_prompt_of(const json::Value& body, const VllmModelView& view,
                                        VllmRequest& out) {
  switch (out.route) {
    case VllmRoute::kCompletions:
      return read_prompts(body, view.model, out);
    case VllmRoute::kChat: {
      auto prompt = read_chat_prompt(body, view, &out.spec.owner);
      if (!prompt) {
        return prompt.error();
      }
      out.spec.prompts.push_back(std::move(*prompt));
      return plan_tools(body, view.model, out);
    }
    case VllmRoute::kGenerate:
      break;
  }
  const auto* ids = find_member(body, "token_ids");
  auto prompt = ids == nullptr ? std::nullopt : read_ids(*ids);
  if (!prompt) {
    return refuse_type("missing", "body.token_ids", "Field required",
                       fmt::format("<dict of {} items>", body.size()))
        .error();
  }
  if (prompt->empty()) {
    return refuse("You must pass at least one prompt").error();
  }
  out.spec.prompts.push_back(std::move(*prompt));
  return std::nullopt;
}

std::optional<VllmError> fill_request(const json::Value& body, const VllmModelView& view,
                                      VllmRequest& out) {
  const json::Value* sampling = &body;
  if (out.route == VllmRoute::kGenerate) {
    const auto* nested = find_member(body, "sampling_params");
    if (nested == nullptr || !nested->is_object()) {
      return refuse_type("missing", "body.sampling_params", "Field required",
                         fmt::format("<dict of {} items>", body.size()))
          .error();
    }
    sampling = nested;
  }
  const auto steps = {
      +[](const json::Value& b, const json::Value&, const VllmModelView& v, VllmRequest& o) {
        return read_prompt_of(b, v, o);
      },
      +[](const json::Value&, const json::Value& s, const VllmModelView&, VllmRequest& o) {
        return read_sampling(s, o.spec.sampling);
      },
      +[](const json::Value&, const json::Value& s, const VllmModelView&, VllmRequest& o) {
        return read_logprobs(s, o);
      },
      +[](const json::Value&, const json::Value& s, const VllmModelView& v, VllmRequest& o) {
        return read_stops(s, v.model, o.spec);
      },
      +[](const json::Value&, const json::Value& s, const VllmModelView& v, VllmRequest& o) {
        return check_lengths(s, v, o);
      },
      +[](const json::Value&, const json::Value&, const VllmModelView& v, VllmRequest& o) {
        return check_tokens(o.spec, v.model);
      },
      +[](const json::Value&, const json::Value& s, const VllmModelView& v, VllmRequest& o) {
        return plan_structure(s, v.model, o);
      },
  };
  for (const auto step : steps) {
    if (auto error = step(body, *sampling, view, out)) {
      return error;
    }
  }
  const int64_t n = read_integer(*sampling, "n").value_or(1);
  if (n < 1 || (n > 1 && out.spec.sampling.greedy())) {
    return refuse_value(n < 1 ? fmt::format("n must be at least 1, got {}.", n)
                              : fmt::format("n must be 1 when using greedy sampling, got {}.", n),
                        "n", std::to_string(n))
        .error();
  }
  out.spec.n = static_cast<uint32_t>(std::min<int64_t>(n, UINT16_MAX));
  return std::nullopt;
}

}  // namespace

VllmResult<json::Value> read_vllm_body(std::string_view body) {
  auto parsed = parse_body(body);
  if (!parsed.ok) {
    const std::string place = fmt::format("body.{}", parsed.error_at);
    return std::unexpected(VllmError{
        .message = fmt::format(
            "1 validation error:\n  {{'type': 'json_invalid', 'loc': '{}', 'msg': 'JSON decode "
            "error', 'input': '<dict of 0 items>', 'ctx': {{'error': 'Expecting property name "
            "enclosed in double quotes'}}}}",
            place),
        .type = "Bad Request",
        .param = place});
  }
  return std::move(parsed.object);
}

VllmResult<std::vector<TokenId>> read_chat_prompt(const json::Value& body,
                                                  const VllmModelView& view, BlockOwner* owner) {
  const auto* messages = find_member(body, "messages");
  if (messages == nullptr || !messages->is_array() || messages->elements().empty()) {
    return refuse_type("missing", "body.messages", "Field required",
                       fmt::format("<dict of {} items>", body.size()));
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
      render_chat(view.model,
                  {.messages_json = messages_json,
                   .tools_json = tools_json,
                   .add_generation_prompt = read_flag(body, "add_generation_prompt", true)},
                  view.now);
  if (!text) {
    return refuse(text.error().message());
  }
  auto ids = encode_text(view.model, *text, read_flag(body, "add_special_tokens", false));
  if (!ids) {
    return refuse(ids.error().message());
  }
  BlockOwner none;
  if (auto placed = place_media(view.model, *media, *ids, owner != nullptr ? owner : &none);
      !placed) {
    return refuse(std::move(placed.error()));
  }
  return std::move(*ids);
}

VllmResult<VllmRequest> read_vllm_request(VllmRoute route, std::string_view body,
                                          const VllmHeaders& headers, const VllmModelView& view) {
  FAKE_TRY(const json::Value object, read_vllm_body(body));
  VllmRequest out;
  out.route = route;
  out.model = read_text(object, "model").value_or("");
  if (auto error = check_model(out, view)) {
    return std::unexpected(std::move(*error));
  }
  read_identity(object, headers, out);
  read_output_options(object, out);
  FAKE_TRY(out.spec.dp_rank, read_dp_rank(headers, view.dp_size));
  if (auto error = fill_request(object, view, out)) {
    return std::unexpected(std::move(*error));
  }
  if (!out.model.empty() && out.model != view.names.front()) {
    const auto found = std::ranges::find(view.names, out.model);
    out.spec.owner.lora_name = out.model;
    out.spec.owner.lora_id = static_cast<uint32_t>(found - view.names.begin());
    out.spec.altered = xxh3_64(std::string_view(out.model));
  }
  return out;
}

}  // namespace stator::fake_engine
