// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/core/result.h"
#include "stator/engine/adapters/control.h"
#include "stator/engine/adapters/dialect.h"

namespace stator::engine::adapters {

// Parts of the SGLang dialect; see make_sglang_dialect().

EngineCall lower_sglang_control(const Control& control);
Status read_sglang_control(const Control& control, int status, std::string_view body);

}  // namespace stator::engine::adapters
