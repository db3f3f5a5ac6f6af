// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/sampling_kernels.h"

#include <algorithm>
#include <limits>

#include "stator/core/assert.h"

// As in kernels.cc: contraction of a·b+c is never left to the compiler.
#pragma STDC FP_CONTRACT OFF
// 64-byte vectors are passed between functions of one instruction set only, all in this file.
#pragma clang diagnostic ignored "-Wpsabi"
// What vectors.inc has is not all used here.
#pragma clang diagnostic ignored "-Wunused-function"

namespace stator::engine::cpu {
namespace {

#define STATOR_KERNELS "stator/engine/cpu/detail/sampling.inc"
#include "stator/engine/cpu/detail/each_isa.inc"

}  // namespace

const SamplingKernels& sampling_kernels_for(Isa isa) {
  return table_of(isa);
}

}  // namespace stator::engine::cpu
