// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/core/result.h"
#include "stator/perf/detail/config_fields.h"
#include "stator/perf/model_config.h"

namespace stator::perf {

/// Which attention and which feed-forward network each layer has, into `model.groups`. The other
/// fields of `model` were read. kInvalidArgument names the field of what is not modelled.
Status read_layers(const detail::ConfigFields& config, ModelConfig& model);

}  // namespace stator::perf
