// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

namespace stator::api {

// The keys of the readers' tables, appended: for field_catalog.h.
void append_chat_input_names(std::vector<std::string_view>& out);
void append_chat_names(std::vector<std::string_view>& out);
void append_completion_names(std::vector<std::string_view>& out);
void append_generate_names(std::vector<std::string_view>& out);
void append_tokenize_names(std::vector<std::string_view>& out);

}  // namespace stator::api
