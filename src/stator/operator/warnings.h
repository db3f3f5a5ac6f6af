// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stator/json/value.h"

namespace stator::op {

/// What a graph or a component (v1beta1) asks for that is stored and kept, but has no effect: one
/// line for each field, fit to be shown to whoever applies it.
std::vector<std::string> warnings_for(const json::Value& object);

}  // namespace stator::op
