// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stator/lab/fake_engine/plain_answer.h"
#include "stator/lab/fake_engine/sglang_adapters.h"

namespace stator::fake_engine {

// What SGLang tells about itself: the members an integration reads, in the types of 0.5.23. Pure.

std::string sglang_model_info(const FakeConfig& config, inference::MediaKinds media);
/// `bootstrap_port`: as bound; `event_endpoint`: of rank 0, empty without events.
std::string sglang_server_info(const ServerContext& context, uint16_t bootstrap_port,
                               const std::string& event_endpoint);
std::string sglang_loads(const ServerContext& context);
std::string sglang_models(const ServerContext& context, const SglangAdapters& adapters);
std::string sglang_metrics(const ServerContext& context, const PlainCounters& counters);

}  // namespace stator::fake_engine
