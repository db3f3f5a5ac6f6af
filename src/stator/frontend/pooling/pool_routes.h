// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "stator/api/pool_request.h"

namespace stator::frontend {

/// A path that takes POSTs of pooling requests.
struct PoolRoute {
  std::string_view path;
  api::PoolKind kind;
};

inline constexpr auto kPoolRoutes = std::to_array<PoolRoute>({
    {"/v1/embeddings", api::PoolKind::kEmbeddings},
    {"/v1/rerank", api::PoolKind::kRerank},
    {"/v2/rerank", api::PoolKind::kRerank},
    {"/rerank", api::PoolKind::kRerank},
    {"/v1/score", api::PoolKind::kScore},
    {"/score", api::PoolKind::kScore},
    {"/v1/classify", api::PoolKind::kClassify},
    {"/classify", api::PoolKind::kClassify},
    {"/v1/pooling", api::PoolKind::kPooling},
    {"/pooling", api::PoolKind::kPooling},
    {"/v2/embed", api::PoolKind::kCohereEmbed},
    {"/embed", api::PoolKind::kTeiEmbed},
    {"/embed_all", api::PoolKind::kTeiEmbedAll},
    {"/predict", api::PoolKind::kTeiPredict},
    {"/similarity", api::PoolKind::kTeiSimilarity},
});

constexpr std::optional<api::PoolKind> find_pool_route(std::string_view path) {
  for (const PoolRoute& route : kPoolRoutes) {
    if (route.path == path) {
      return route.kind;
    }
  }
  return std::nullopt;
}

/// The kind as the metric label `endpoint`.
constexpr std::string_view endpoint_label(api::PoolKind kind) {
  constexpr std::array<std::string_view, 10> kLabels = {
      "embeddings", "rerank",     "score",   "classify", "pooling",
      "embeddings", "embeddings", "pooling", "classify", "score"};
  return kLabels[static_cast<size_t>(kind)];
}

}  // namespace stator::frontend
