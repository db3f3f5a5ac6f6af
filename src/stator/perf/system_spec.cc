// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/system_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

namespace stator::perf {
namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;
constexpr double kGib = 1024.0 * 1024 * 1024;

SystemSpec node(std::string_view name, std::array<double, 2> memory,
                std::array<double, 3> teraflops, std::array<double, 2> links,
                std::array<double, 2> watts_sm) {
  SystemSpec spec;
  spec.name = name;
  spec.memory_bytes_per_s = memory[0] * kGiga;
  spec.memory_bytes = memory[1] * kGib;
  spec.bfloat16_flops = teraflops[0] * kTera;
  spec.fp8_flops = teraflops[1] * kTera;
  spec.fp4_flops = teraflops[2] * kTera;
  spec.intra_node_bytes_per_s = links[0] * kGiga;
  spec.inter_node_bytes_per_s = links[1] * kGiga;
  spec.watts = watts_sm[0];
  spec.sm_version = static_cast<uint32_t>(watts_sm[1]);
  return spec;
}

/// 18 trays of four GPUs behind one NVLink switch.
SystemSpec rack(SystemSpec spec) {
  spec.gpus_per_node = 4;
  spec.gpus_per_rack = 72;
  spec.inter_rack_bytes_per_s = 100 * kGiga;
  return spec;
}

SystemSpec small(SystemSpec spec) {
  spec.other_bytes = 0.5 * kGib;
  spec.p2p_latency_s = 2e-6;
  return spec;
}

// name, {memory GB/s, GiB}, {bf16, fp8, fp4 TFLOPS}, {in the node, between nodes GB/s}, {W, SM}
const std::array<SystemSpec, 14> kSystems = {
    node("a100_sxm", {2039, 80}, {312, 0, 0}, {300, 25}, {400, 80}),
    node("a100_pcie", {1935, 80}, {312, 0, 0}, {32, 25}, {300, 80}),
    node("a30", {933, 24}, {165, 0, 0}, {32, 25}, {165, 80}),
    node("h100_sxm", {3350, 80}, {989, 1978, 0}, {450, 50}, {700, 90}),
    node("h100_pcie", {2000, 80}, {756.5, 1513, 0}, {64, 50}, {350, 90}),
    node("h200_sxm", {4800, 141}, {989, 1978, 0}, {450, 50}, {700, 90}),
    node("l40s", {864, 44.99}, {362, 733, 0}, {32, 50}, {350, 89}),
    node("l4", {300, 24}, {121, 242, 0}, {32, 25}, {72, 89}),
    node("b200_sxm", {7700, 180}, {2250, 4500, 9000}, {900, 100}, {1000, 100}),
    node("b300_sxm", {7750, 268.6}, {2250, 4500, 14000}, {900, 100}, {1100, 103}),
    rack(node("gb200", {8000, 185}, {2500, 5000, 10000}, {900, 900}, {1200, 100})),
    rack(node("gb300", {8000, 277.5}, {2500, 5000, 15000}, {900, 900}, {1400, 103})),
    node("rtx_pro_6000_server", {1792, 95.6}, {467.8, 935.6, 1871.2}, {64, 50}, {600, 120}),
    small(node("b60", {456, 24}, {98.3, 0, 0}, {28.4, 50}, {200, 0})),
};

using enum QuantMode::Lane;
constexpr std::array<QuantMode, 13> kQuants = {{
    {"bfloat16", 2, kBfloat16},
    {"bf16", 2, kBfloat16},
    {"int8_wo", 1, kBfloat16},
    {"int4_wo", 0.5, kBfloat16},
    {"fp8", 1, kFp8},
    {"fp8_static", 1, kFp8},
    {"fp8_block", 1, kFp8},
    {"nvfp4", 9.0 / 16, kFp4},
    {"nvfp4_wo", 9.0 / 16, kBfloat16},
    {"w4afp8", 0.5, kFp8},
    {"w4a16_mxfp4", 0.5, kBfloat16},
    {"w4a8_mxfp4_mxfp8", 0.5, kFp8},
    {"int8", 1, kBfloat16},
}};

}  // namespace

double SystemSpec::link_bytes_per_s(uint32_t gpus) const {
  if (gpus <= gpus_per_node) {
    return intra_node_bytes_per_s;
  }
  return gpus_per_rack > 0 && gpus > gpus_per_rack ? inter_rack_bytes_per_s
                                                   : inter_node_bytes_per_s;
}

double SystemSpec::communication_bytes(uint32_t ranks) {
  constexpr double kMib = 1024.0 * 1024;
  return ranks < 2 ? 0 : (ranks < 4 ? 342 * kMib : 392 * kMib);
}

std::span<const SystemSpec> systems() {
  return kSystems;
}

Result<SystemSpec> find_system(std::string_view name) {
  // With or without what the GPU is mounted on.
  const auto bare = [](std::string_view of) {
    for (const std::string_view end : {"_sxm", "_server", "_nvl72", "_superchip"}) {
      of = of.ends_with(end) ? of.substr(0, of.size() - end.size()) : of;
    }
    return of;
  };
  std::string wanted(name);
  std::ranges::transform(wanted, wanted.begin(), [](char c) {
    return c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  for (const SystemSpec& system : kSystems) {
    if (system.name == wanted || bare(system.name) == bare(wanted)) {
      return system;
    }
  }
  std::string known;
  for (const SystemSpec& system : kSystems) {
    known += known.empty() ? "" : ", ";
    known += system.name;
  }
  return Error(Code::kNotFound, fmt::format("no system '{}'; known: {}", name, known));
}

Result<QuantMode> find_quant(std::string_view name) {
  const auto* const found = std::ranges::find(kQuants, name, &QuantMode::name);
  if (found == kQuants.end()) {
    std::string known;
    for (const QuantMode& mode : kQuants) {
      known += known.empty() ? "" : ", ";
      known += mode.name;
    }
    return Error(Code::kInvalidArgument,
                 fmt::format("no quantization '{}'; known: {}", name, known));
  }
  return *found;
}

double flops_of(const SystemSpec& system, const QuantMode& mode) {
  double peak = system.bfloat16_flops;
  if (mode.lane != kBfloat16) {
    peak = std::max(peak, system.fp8_flops);
  }
  if (mode.lane == kFp4) {
    peak = std::max(peak, system.fp4_flops);
  }
  return peak;
}

}  // namespace stator::perf
