// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include "stator/json/writer.h"
#include "stator/protocols/kserve/kserve.h"
#include "stator/text/percent.h"

namespace stator::protocols::kserve {
namespace {

constexpr std::string_view kRoot = "/v2";
constexpr std::string_view kHealth = "/v2/health/";
constexpr std::string_view kModels = "/v2/models/";
constexpr std::string_view kVersions = "/versions/";
constexpr auto kVerbs = std::to_array<std::pair<std::string_view, Verb>>({
    {"/ready", Verb::kReady},
    {"/config", Verb::kConfig},
    {"/infer", Verb::kInfer},
    {"/generate", Verb::kGenerate},
    {"/generate_stream", Verb::kGenerateStream},
});

}  // namespace

std::optional<ModelPath> parse_model_path(std::string_view path) {
  if (!path.starts_with(kModels)) {
    return std::nullopt;
  }
  std::string_view rest = path.substr(kModels.size());
  ModelPath parsed;
  for (const auto& [suffix, verb] : kVerbs) {
    if (rest.ends_with(suffix)) {
      rest.remove_suffix(suffix.size());
      parsed.verb = verb;
      break;
    }
  }
  if (const size_t at = rest.rfind(kVersions); at != std::string_view::npos) {
    parsed.version = rest.substr(at + kVersions.size());
    rest = rest.substr(0, at);
  }
  if (rest.empty()) {
    return std::nullopt;
  }
  parsed.model = text::percent_decode(rest);
  return parsed;
}

bool is_kserve_path(std::string_view path) {
  // Not all of /v2: Cohere's /v2/rerank is not of this protocol.
  return path == kRoot || path.starts_with(kHealth) || path.starts_with(kModels);
}

void append_error(std::string& out, const api::ErrorBody& body, const api::ErrorStyle& /*style*/) {
  json::Writer(out).begin_object().key("error").value(body.message).end_object();
}

}  // namespace stator::protocols::kserve
