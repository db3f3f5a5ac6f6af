// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/event_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "stator/engine/adapters/json_fields.h"

namespace stator::engine::adapters {

std::string reachable_endpoint(std::string_view endpoint, std::string_view host) {
  constexpr std::string_view kTcp = "tcp://";
  const size_t colon = endpoint.rfind(':');
  if (!endpoint.starts_with(kTcp) || colon == std::string_view::npos || colon < kTcp.size()) {
    return std::string(endpoint);
  }
  const std::string_view bound = endpoint.substr(kTcp.size(), colon - kTcp.size());
  const bool wildcard = bound == "*" || bound == "0.0.0.0" || bound == "::" || bound == "[::]";
  return wildcard && !host.empty() ? fmt::format("tcp://{}{}", host, endpoint.substr(colon))
                                   : std::string(endpoint);
}

std::string endpoint_of_rank(std::string_view endpoint, uint32_t rank) {
  if (rank == 0) {
    return std::string(endpoint);
  }
  if (endpoint.starts_with("inproc://")) {
    return fmt::format("{}_dp{}", endpoint, rank);
  }
  const size_t colon = endpoint.rfind(':');
  uint32_t port = 0;
  if (!endpoint.starts_with("tcp://") || colon == std::string_view::npos ||
      std::from_chars(endpoint.data() + colon + 1, endpoint.data() + endpoint.size(), port).ec !=
          std::errc()) {
    return std::string(endpoint);
  }
  return fmt::format("{}:{}", endpoint.substr(0, colon), port + rank);
}

Status learn_vllm_event_sources(std::string_view body, std::string_view host, EngineFacts& facts) {
  JsonReader reader;
  STATOR_TRY(const JsonObject root, reader.read_object(body, "/kv_event_sources"));
  facts.kv_sources.clear();
  for (const auto entry : root) {
    JsonObject fields;
    uint32_t rank = 0;
    const std::string_view name = entry.key;
    if (std::from_chars(name.data(), name.data() + name.size(), rank).ec != std::errc() ||
        entry.value.get(fields) != simdjson::SUCCESS ||
        !is_true(fields, "enable_kv_cache_events") || text_or(fields, "publisher", "") != "zmq") {
      continue;
    }
    facts.kv_sources.push_back(
        {.dp_rank = rank,
         .endpoint = reachable_endpoint(text_or(fields, "endpoint", ""), host),
         .replay_endpoint = reachable_endpoint(text_or(fields, "replay_endpoint", ""), host),
         .topic = std::string(text_or(fields, "topic", ""))});
  }
  std::ranges::sort(facts.kv_sources, {}, &KvEventSource::dp_rank);
  if (!facts.kv_sources.empty()) {
    facts.dp_size = std::min(facts.kv_sources.back().dp_rank + 1, kDpRanksMax);
    std::erase_if(facts.kv_sources, [](const auto& each) { return each.dp_rank >= kDpRanksMax; });
  }
  return {};
}

}  // namespace stator::engine::adapters
