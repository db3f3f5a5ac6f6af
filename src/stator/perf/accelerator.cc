// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/accelerator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

namespace stator::perf {
namespace {

constexpr std::array<Accelerator, 8> kKnown = {{
    {"a100", 2.039e12, 312e12, 0, 0, 300e9},
    {"h100", 3.35e12, 989e12, 1979e12, 0, 450e9},
    {"h200", 4.8e12, 989e12, 1978e12, 0, 450e9},
    {"b200", 7.7e12, 2250e12, 4500e12, 9000e12, 900e9},
    {"b300", 7.7e12, 2250e12, 4500e12, 13500e12, 900e9},
    {"l40s", 0.864e12, 362e12, 733e12, 0, 32e9},
    {"l4", 0.3e12, 121e12, 242e12, 0, 32e9},
    {"a30", 0.933e12, 165e12, 0, 0, 100e9},
}};

}  // namespace

double bytes_of(Precision precision) {
  constexpr double kFp4WithScales = 9.0 / 16;  // one fp8 scale for 16 elements
  return precision == Precision::kBfloat16 ? 2 : precision == Precision::kFp8 ? 1 : kFp4WithScales;
}

Result<Precision> find_precision(std::string_view name) {
  for (const Precision precision : {Precision::kBfloat16, Precision::kFp8, Precision::kFp4}) {
    if (name == name_of(precision)) {
      return precision;
    }
  }
  return Error(Code::kInvalidArgument,
               fmt::format("precision must be bfloat16, fp8 or fp4, not '{}'", name));
}

std::string_view name_of(Precision precision) {
  return precision == Precision::kBfloat16 ? "bfloat16"
         : precision == Precision::kFp8    ? "fp8"
                                           : "fp4";
}

double Accelerator::flops(Precision precision) const {
  if (precision == Precision::kFp4 && fp4_flops > 0) {
    return fp4_flops;
  }
  return precision != Precision::kBfloat16 && fp8_flops > 0 ? fp8_flops : bfloat16_flops;
}

Result<Accelerator> find_accelerator(std::string_view name) {
  const auto found = std::ranges::find(kKnown, name, &Accelerator::name);
  if (found != kKnown.end()) {
    return *found;
  }
  std::string names;
  for (const Accelerator& known : kKnown) {
    names += names.empty() ? "" : ", ";
    names += known.name;
  }
  return Error(Code::kNotFound,
               fmt::format("accelerator '{}' is not known; known: {}", name, names));
}

}  // namespace stator::perf
