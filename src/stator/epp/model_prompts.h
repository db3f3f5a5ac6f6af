// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/epp/ext_proc_stream.h"

namespace stator::epp {

/// Reads prompts as a frontend of this model would: its chat template, its tokenizer, the block
/// hashes that its workers tell of. `folder` is a model's, `block_size` its workers'. Errors of
/// the folder as frontend::load_model_assets.
Result<std::shared_ptr<PromptReader>> make_model_prompts(const std::string& folder,
                                                         uint32_t block_size, const Clock& clock,
                                                         Metrics& metrics);

}  // namespace stator::epp
