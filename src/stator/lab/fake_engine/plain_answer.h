// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "stator/lab/fake_engine/dialect_service.h"
#include "stator/lab/fake_engine/plain_encoder.h"

namespace stator::fake_engine {

/// What an engine other than vLLM has counted.
struct PlainCounters {
  uint64_t requests = 0;
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t generation_tokens = 0;
  uint64_t aborted = 0;
};

/// Lets a dialect act around a generation. All may be empty.
struct PlainHooks {
  /// Before the job starts: call `go(altered)` now or later, or `fail(message)`.
  std::function<void(std::function<void(uint64_t)> go, std::function<void(std::string)> fail)>
      before;
  /// After the last token, before the answer is written.
  std::function<void(PlainState&)> after;
};

/// One generation request of SGLang, TensorRT-LLM or llama.cpp. `counters` outlives it.
std::unique_ptr<Answer> make_plain_answer(ServerContext& context, net::HttpExchange& exchange,
                                          Fault fault, PlainRequest request,
                                          PlainCounters& counters, PlainHooks hooks);

PlainView plain_view_of(const ServerContext& context);
void respond_plain_error(net::HttpExchange& exchange, Dialect dialect, const PlainError& error);

}  // namespace stator::fake_engine
