// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "stator/api/response_body.h"

namespace stator::protocols::anthropic {

/// The header with which Anthropic's clients ask for its shape where both protocols have a path.
inline constexpr std::string_view kVersionHeader = "anthropic-version";

/// {"data":[…],"has_more":false,"first_id","last_id"}
void append_model_list(std::string& out, std::span<const api::ModelEntry> models);
/// {"id","type":"model","display_name","created_at","max_input_tokens"}
void append_model(std::string& out, const api::ModelEntry& model);

}  // namespace stator::protocols::anthropic
