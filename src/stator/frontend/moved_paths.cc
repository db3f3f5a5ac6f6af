// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/moved_paths.h"

#include <fmt/format.h>

#include <algorithm>

namespace stator::frontend {
namespace {

struct Movable {
  std::string_view key;
  std::string_view path;
  std::string_view peer;
};
constexpr auto kMovable = std::to_array<Movable>({
    {"http.paths.anthropic", "/v1/messages", "DYN_HTTP_SVC_ANTHROPIC_PATH"},
    {"http.paths.batches", "/v1/batches", "DYN_HTTP_SVC_BATCHES_PATH"},
    {"http.paths.chat", "/v1/chat/completions", "DYN_HTTP_SVC_CHAT_PATH"},
    {"http.paths.classify", "/v1/classify", "DYN_HTTP_SVC_CLASSIFY_PATH"},
    {"http.paths.completions", "/v1/completions", "DYN_HTTP_SVC_CMP_PATH"},
    {"http.paths.embeddings", "/v1/embeddings", "DYN_HTTP_SVC_EMB_PATH"},
    {"http.paths.files", "/v1/files", "DYN_HTTP_SVC_FILES_PATH"},
    {"http.paths.health", "/health", "DYN_HTTP_SVC_HEALTH_PATH"},
    {"http.paths.live", "/live", "DYN_HTTP_SVC_LIVE_PATH"},
    {"http.paths.metrics", "/metrics", "DYN_HTTP_SVC_METRICS_PATH"},
    {"http.paths.models", "/v1/models", "DYN_HTTP_SVC_MODELS_PATH"},
    {"http.paths.pooling", "/v1/pooling", "DYN_HTTP_SVC_POOLING_PATH"},
    {"http.paths.responses", "/v1/responses", "DYN_HTTP_SVC_RESPONSES_PATH"},
    {"http.paths.sglang_generate", "/generate", "DYN_HTTP_SVC_SGLANG_GENERATE_PATH"},
    {"http.paths.vllm_generate", "/inference/v1/generate", "DYN_HTTP_SVC_VLLM_GENERATE_PATH"},
});
static_assert(kMovable.size() == MovedPaths::kCount);

bool lies_under(std::string_view target, std::string_view path) {
  return target.starts_with(path) &&
         (target.size() == path.size() || target[path.size()] == '/' || target[path.size()] == '?');
}

}  // namespace

void MovedPaths::describe(ConfigSchema& schema) {
  for (size_t i = 0; i < kCount; ++i) {
    schema.text(kMovable[i].key, paths_[i],
                fmt::format("path under which {} is found, too, empty = none", kMovable[i].path),
                {.env_peer = kMovable[i].peer});
  }
}

std::optional<std::string> MovedPaths::target_of(std::string_view target) const {
  for (size_t i = 0; i < kCount; ++i) {
    const std::string& path = paths_[i];
    if (!path.empty() && path != "/" && lies_under(target, path)) {
      return std::string(kMovable[i].path).append(target.substr(path.size()));
    }
  }
  return std::nullopt;
}

void MovedPaths::apply(net::HttpRequest& request) const {
  const bool any = std::ranges::any_of(paths_, [](const std::string& p) { return !p.empty(); });
  if (const auto target = any ? target_of(request.target()) : std::nullopt) {
    const std::string method(request.method());
    request.set_start(method, *target);
  }
}

}  // namespace stator::frontend
