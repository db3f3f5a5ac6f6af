// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/engine/sim/sim_runner.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::app {

/// Reads what the simulated engine shall say (`sim.reply`). A file named *.jsonl holds one
/// {"when":"…","reply":"…"} per line (see engine::ScriptedReply; no `when`: any prompt); any other
/// file is one reply, word for word. Special tokens in replies are recognised. kNotFound, or
/// kInvalidArgument naming file and line. Blocking; at most kMaxSimReplyFileBytes.
Result<std::vector<engine::ScriptedReply>> read_sim_replies(const std::string& path,
                                                            const tokenizer::Tokenizer& tokenizer);

inline constexpr size_t kMaxSimReplyFileBytes = size_t{16} << 20;

}  // namespace stator::app
