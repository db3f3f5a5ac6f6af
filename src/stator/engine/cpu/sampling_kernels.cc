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

namespace baseline {
#if defined(__ARM_NEON) || defined(__FMA__)
#define STATOR_FUSED 1
#else
#define STATOR_FUSED 0
#endif
#define STATOR_ACCUMULATORS 3
#define STATOR_LEVEL 0
#include "stator/engine/cpu/detail/sampling.inc"
#undef STATOR_LEVEL
#undef STATOR_ACCUMULATORS
#undef STATOR_FUSED
}  // namespace baseline

#if defined(__x86_64__)
#define STATOR_FUSED 1
namespace avx2 {
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#define STATOR_ACCUMULATORS 6
#define STATOR_LEVEL 1
#include "stator/engine/cpu/detail/sampling.inc"
#undef STATOR_LEVEL
#undef STATOR_ACCUMULATORS
#pragma clang attribute pop
}  // namespace avx2

namespace avx512 {
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma"))), \
                             apply_to = function)
#define STATOR_ACCUMULATORS 24
#define STATOR_LEVEL 2
#include "stator/engine/cpu/detail/sampling.inc"
#undef STATOR_LEVEL
#pragma clang attribute pop
}  // namespace avx512

namespace avx512vnni {
#pragma clang attribute push(                                                     \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma"))), \
    apply_to = function)
#define STATOR_LEVEL 3
#include "stator/engine/cpu/detail/sampling.inc"
#undef STATOR_LEVEL
#undef STATOR_ACCUMULATORS
#pragma clang attribute pop
}  // namespace avx512vnni
#undef STATOR_FUSED
#endif

constexpr SamplingKernels kBaselineTable = baseline::make_table();
#if defined(__x86_64__)
constexpr SamplingKernels kAvx2Table = avx2::make_table();
constexpr SamplingKernels kAvx512Table = avx512::make_table();
constexpr SamplingKernels kAvx512VnniTable = avx512vnni::make_table();
#endif

}  // namespace

const SamplingKernels& sampling_kernels_for(Isa isa) {
  STATOR_ASSERT(supports(isa), "this CPU cannot run the asked instruction set");
#if defined(__x86_64__)
  if (isa == Isa::kAvx512Vnni) {
    return kAvx512VnniTable;
  }
  if (isa == Isa::kAvx512) {
    return kAvx512Table;
  }
  if (isa == Isa::kAvx2) {
    return kAvx2Table;
  }
#endif
  return kBaselineTable;
}

}  // namespace stator::engine::cpu
