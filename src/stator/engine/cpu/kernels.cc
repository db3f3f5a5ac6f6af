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

#define STATOR_KERNELS "stator/engine/cpu/detail/kernels.inc"
#include "stator/engine/cpu/detail/each_isa.inc"

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
  return table_of(isa);
}

}  // namespace stator::engine::cpu
