// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "stator/inference/step_output.h"

namespace stator::session::detail {

/// Appends `from` to `into` as if one step had produced both. Order per key is kept.
void merge_step(inference::StepOutput& into, inference::StepOutput from);

/// Drops offers and prompts whose request has no delta in the step: it was not wanted.
void drop_lone_parts(inference::StepOutput& step);

/// What a step costs while it waits, in bytes: within a factor of two of the heap it holds.
size_t step_bytes(const inference::StepOutput& step);

}  // namespace stator::session::detail
