// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/request_defaults.h"

#include <fmt/format.h>

#include "stator/json/value.h"

namespace stator::frontend {

/// Reads what RequestDefaults keeps.
struct RequestDefaultsReader {
  using Values = RequestDefaults::Values;

  static Error wrong(std::string_view where, std::string_view key, std::string_view what) {
    return {Code::kInvalidArgument, fmt::format("request template: {}{} {}", where, key, what)};
  }

  static Status read_member(std::string_view where, const json::Member& member, Values& out) {
    const auto number = member.value.as_double();
    const auto within = [&](double low, double high) {
      return number && *number >= low && *number <= high;
    };
    if (member.key == "temperature" && within(0, 2)) {
      out.temperature = static_cast<float>(*number);
    } else if (member.key == "top_p" && within(1e-6, 1)) {
      out.top_p = static_cast<float>(*number);
    } else if (member.key == "min_p" && within(0, 1)) {
      out.min_p = static_cast<float>(*number);
    } else if (member.key == "top_k" && member.value.as_int64() && within(-1, INT32_MAX)) {
      out.top_k = static_cast<int32_t>(*number);
    } else if ((member.key == "max_completion_tokens" || member.key == "max_tokens") &&
               member.value.as_int64() && within(1, api::kMaxOutputTokens)) {
      out.max_tokens = static_cast<uint32_t>(*number);
    } else {
      return wrong(where, member.key,
                   "must be one of temperature (0 to 2), top_p (above 0, at most 1), min_p (0 to "
                   "1), top_k (-1 or more), max_completion_tokens (1 to 1048576)");
    }
    return {};
  }

  static Status read_models(const json::Value& models, RequestDefaults& out) {
    if (!models.is_object()) {
      return wrong("", "models", "must be an object");
    }
    for (const json::Member& model : models.members()) {
      const std::string where = fmt::format("models.{}.", model.key);
      if (!model.value.is_object()) {
        return wrong("models.", model.key, "must be an object");
      }
      for (const json::Member& member : model.value.members()) {
        STATOR_CHECK(read_member(where, member, out.models_[model.key]));
      }
    }
    return {};
  }

  static Result<std::shared_ptr<const RequestDefaults>> read(const json::Value& document) {
    if (!document.is_object()) {
      return Error(Code::kInvalidArgument, "request template: must be a JSON object");
    }
    auto out = std::make_shared<RequestDefaults>();
    for (const json::Member& member : document.members()) {
      if (member.key == "models") {
        STATOR_CHECK(read_models(member.value, *out));
      } else if (member.key !=
                 "model") {  // Dynamo's default model: here each request names its own
        STATOR_CHECK(read_member("", member, out->all_));
      }
    }
    return std::shared_ptr<const RequestDefaults>(std::move(out));
  }
};

Result<std::shared_ptr<const RequestDefaults>> RequestDefaults::parse(std::string_view text) {
  STATOR_TRY(const json::Value document, json::parse(text), "request template");
  return RequestDefaultsReader::read(document);
}

void RequestDefaults::Values::apply(api::GenerateOptions& options) const {
  const auto fill = [](auto& there, const auto& value) {
    if (!there && value) {
      there = value;
    }
  };
  fill(options.sampling.temperature, temperature);
  fill(options.sampling.top_p, top_p);
  fill(options.sampling.min_p, min_p);
  fill(options.sampling.top_k, top_k);
  fill(options.max_tokens, max_tokens);
}

void RequestDefaults::apply(std::string_view model, api::GenerateOptions& options) const {
  if (const auto own = models_.find(model); own != models_.end()) {
    own->second.apply(options);
  }
  all_.apply(options);
}

}  // namespace stator::frontend
