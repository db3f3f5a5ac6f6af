// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace stator::op {

/// Of the Secret with the key by which TensorRT-LLM's leaders reach their workers.
std::string ssh_secret_name(std::string_view graph);

/// On a Secret that is made once: what it is to hold, which only the one who makes it knows.
inline constexpr std::string_view kAnnotationGenerate = "stator.dev/generate";

}  // namespace stator::op
