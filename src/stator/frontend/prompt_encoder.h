// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stator/api/api_error.h"
#include "stator/api/request.h"
#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/frontend/model_catalog.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::frontend {

// From a conversation or a text to token ids.

/// Renders and encodes a conversation, without limits on its length.
api::ApiResult<std::vector<TokenId>> encode_chat(const api::ChatInput& chat,
                                                 const ServedModel& model, WallTime now);
/// Encodes text (NUL bytes are dropped).
api::ApiResult<std::vector<TokenId>> encode_text(std::string text, const ServedModel& model,
                                                 tokenizer::AddSpecial add_special);

}  // namespace stator::frontend
