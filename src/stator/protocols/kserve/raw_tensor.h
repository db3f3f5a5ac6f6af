// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/protocols/kserve/infer.h"

namespace stator::protocols::kserve {

/// Fills the elements from their binary form: little endian; of BYTES each behind its length in
/// four bytes. kInvalidArgument for other types and for what does not fit the shape.
api::ApiStatus read_raw(InputTensor& tensor, std::string_view bytes);

/// The same the other way; INT32 for ids.
void append_raw(std::string& out, const OutputTensor& tensor);

/// How many elements the shape has; nothing for one that is none or too large.
std::optional<size_t> element_count(const InputTensor& tensor);

}  // namespace stator::protocols::kserve
