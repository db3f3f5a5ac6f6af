// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/kernels.h"

#include "stator/core/assert.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

// Contraction of a·b+c is never left to the compiler: K2 depends on where rounding happens.
#pragma STDC FP_CONTRACT OFF
// 64-byte vectors are passed between functions of one instruction set only, all in this file.
#pragma clang diagnostic ignored "-Wpsabi"

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
#include "stator/engine/cpu/detail/kernels.inc"
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
#include "stator/engine/cpu/detail/kernels.inc"
#undef STATOR_LEVEL
#undef STATOR_ACCUMULATORS
#pragma clang attribute pop
}  // namespace avx2

namespace avx512 {
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma"))), \
                             apply_to = function)
#define STATOR_ACCUMULATORS 24
#define STATOR_LEVEL 2
#include "stator/engine/cpu/detail/kernels.inc"
#undef STATOR_LEVEL
#pragma clang attribute pop
}  // namespace avx512

namespace avx512vnni {
#pragma clang attribute push(                                                     \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma"))), \
    apply_to = function)
#define STATOR_LEVEL 3
#include "stator/engine/cpu/detail/kernels.inc"
#undef STATOR_LEVEL
#undef STATOR_ACCUMULATORS
#pragma clang attribute pop
}  // namespace avx512vnni
#undef STATOR_FUSED
#endif

constexpr Kernels kBaselineTable = baseline::make_table(Isa::kBaseline);
#if defined(__x86_64__)
constexpr Kernels kAvx2Table = avx2::make_table(Isa::kAvx2);
constexpr Kernels kAvx512Table = avx512::make_table(Isa::kAvx512);
constexpr Kernels kAvx512VnniTable = avx512vnni::make_table(Isa::kAvx512Vnni);
#endif

}  // namespace

std::string_view to_string(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Vnni:
      return "avx512_vnni";
    case Isa::kBaseline:
      break;
  }
  return "baseline";
}

std::string_view to_string(KvType type) {
  switch (type) {
    case KvType::kF16:
      return "f16";
    case KvType::kBf16:
      return "bf16";
    case KvType::kInt8:
      return "int8";
    case KvType::kF32:
      break;
  }
  return "f32";
}

bool supports(Isa isa) {
  if (isa == Isa::kBaseline) {
    return true;
  }
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
  }
  if (isa == Isa::kAvx512Vnni && !__builtin_cpu_supports("avx512vnni")) {
    return false;
  }
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
  return false;
#endif
}

Isa detect_isa() {
  for (const Isa isa : {Isa::kAvx512Vnni, Isa::kAvx512, Isa::kAvx2}) {
    if (supports(isa)) {
      return isa;
    }
  }
  return Isa::kBaseline;
}

const Kernels& kernels_for(Isa isa) {
  STATOR_ASSERT(supports(isa), "kernels_for: this CPU cannot run the asked instruction set");
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
