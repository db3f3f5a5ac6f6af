// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/operator/field_check.h"

namespace stator::op {

/// What only v1alpha1 can say wrongly: claims, mounts and shared memory of a graph (`object`
/// as it was written, or with that spec), or of a component. For objects that are new.
void check_alpha(FieldCheck& check, const json::Value& object);

}  // namespace stator::op
