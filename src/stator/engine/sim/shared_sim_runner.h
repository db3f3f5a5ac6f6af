// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "stator/engine/sim/sim_runner.h"

namespace stator::engine {

/// A simulated engine's runner whose blocks' "KV" others may read and write, for prompts that are
/// handed over: `blocks` of the device and `host_blocks` of host memory (EngineConfig::total_blocks
/// and host_blocks). Errors as of make_sim_runner().
Result<std::unique_ptr<ModelRunner>> make_shared_sim_runner(SimRunnerConfig config, uint32_t blocks,
                                                            uint32_t host_blocks);

}  // namespace stator::engine
