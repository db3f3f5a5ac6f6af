// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/engine/adapters/dialect.h"

namespace stator::engine::adapters {

/// An endpoint as an engine bound it ("tcp://*:5557", "tcp://0.0.0.0:5557"), with `host` in place
/// of a wildcard. Others as they are.
std::string reachable_endpoint(std::string_view endpoint, std::string_view host);

/// More ranks of one server are not believed.
inline constexpr uint32_t kDpRanksMax = 1024;

/// The endpoint of another rank: a tcp port grows by `rank`, an inproc name gets "_dp<rank>".
std::string endpoint_of_rank(std::string_view endpoint, uint32_t rank);

/// Reads vLLM's /kv_event_sources: a map from rank to where it publishes, empty when events are
/// off.
Status learn_vllm_event_sources(std::string_view body, std::string_view host, EngineFacts& facts);

}  // namespace stator::engine::adapters
