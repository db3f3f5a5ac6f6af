// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "stator/engine/cpu/pooling/encoder_config.h"

namespace stator::engine::cpu {

// What encoders compute beside products and attention. One order of additions per element, so equal
// inputs give equal bits on every machine that has the same instructions.

/// out = (x − mean(x)) / sqrt(variance(x) + epsilon) · weight + bias; out may be x.
void layer_norm(const float* x, const float* weight, const float* bias, int64_t count,
                float epsilon, float* out);

/// x = activation(x + bias). The error of erf within gelu is below 2e-7.
void add_bias_and_activate(float* x, const float* bias, int64_t count,
                           EncoderActivation activation);

}  // namespace stator::engine::cpu
