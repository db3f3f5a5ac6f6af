// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "stator/lab/fake_engine/plain_answer.h"

namespace stator::fake_engine {

/// LoRA adapters of a fake SGLang: name to path.
using SglangAdapters = std::map<std::string, std::string, std::less<>>;

/// /load_lora_adapter and /unload_lora_adapter, answered as 0.5 does.
void change_sglang_adapters(const FakeConfig& config, SglangAdapters& adapters,
                            std::string_view path, net::HttpExchange& exchange);

/// Makes a request's answer its adapter's own; false for an adapter that is not loaded.
bool apply_sglang_adapter(const SglangAdapters& adapters, PlainRequest& request);

}  // namespace stator::fake_engine
