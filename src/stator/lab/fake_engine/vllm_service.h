// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/lab/fake_engine/dialect_service.h"
#include "stator/lab/fake_engine/open_handoffs.h"
#include "stator/lab/fake_engine/side_channel_service.h"
#include "stator/lab/fake_engine/vllm_metrics.h"
#include "stator/lab/fake_engine/vllm_request.h"

namespace stator::fake_engine {

/// What a fake vLLM remembers between requests. Shared by its routes and answers; on the loop,
/// except `open_handoffs`, which the side channel's thread asks, too.
struct VllmState {
  std::vector<std::string> names;          ///< base model, then adapters
  std::vector<std::string> adapter_paths;  ///< parallel to names, from 1
  std::string fingerprint;
  std::string engine_id;
  std::vector<VllmCounters> counters;  ///< by rank
  uint32_t sleep_level = 0;
  bool paused = false;

  Mutex desk_mutex;
  std::unique_ptr<OpenHandoffs> open_handoffs STATOR_GUARDED_BY(desk_mutex);
  std::unique_ptr<SideChannel> channel;

  bool parked() const { return sleep_level > 0 || paused; }
};

/// One generation request over /v1/completions, /v1/chat/completions or /inference/v1/generate.
std::unique_ptr<Answer> make_vllm_answer(ServerContext& context, VllmState& state,
                                         net::HttpExchange& exchange, Fault fault,
                                         VllmRequest request);

VllmModelView view_of(const ServerContext& context, const VllmState& state);
void respond_error(net::HttpExchange& exchange, const ServerContext& context,
                   const VllmError& error);

/// Routes that are not about generating. False: none of them.
bool handle_vllm_info(ServerContext& context, VllmState& state, net::HttpExchange& exchange);
bool handle_vllm_admin(ServerContext& context, VllmState& state, net::HttpExchange& exchange);

}  // namespace stator::fake_engine
