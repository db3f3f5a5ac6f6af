// SPDX-License-Identifier: Apache-2.0
#include "stator/transfer/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stator::transfer {
namespace {

constexpr size_t kLine = 64;
/// Below it a copy stays in the caches anyway.
constexpr size_t kStreamingMin = size_t{32} << 10;
constexpr size_t kProbeBytes = size_t{8} << 20;
/// Streaming must win by this much to be chosen.
constexpr double kGainMin = 1.1;

#if defined(__x86_64__)

__attribute__((target("avx2"))) void copy_streaming(std::byte* target, const std::byte* source,
                                                    size_t count) {
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(target) % kLine) % kLine;
  std::memcpy(target, source, std::min(head, count));
  size_t at = std::min(head, count);
  for (; at + kLine <= count; at += kLine) {
    const auto* from = reinterpret_cast<const __m256i*>(source + at);
    auto* to = reinterpret_cast<__m256i*>(target + at);
    const __m256i low = _mm256_loadu_si256(from);
    const __m256i high = _mm256_loadu_si256(from + 1);
    _mm256_stream_si256(to, low);
    _mm256_stream_si256(to + 1, high);
  }
  _mm_sfence();
  std::memcpy(target + at, source + at, count - at);
}

bool can_stream() {
  return __builtin_cpu_supports("avx2") != 0;
}

#else

void copy_streaming(std::byte* target, const std::byte* source, size_t count) {
  std::memcpy(target, source, count);
}

bool can_stream() {
  return false;
}

#endif

CopyPlan measure(Clock& clock) {
  if (!can_stream()) {
    return {};
  }
  std::vector<std::byte> source(kProbeBytes, std::byte{1});
  std::vector<std::byte> target(kProbeBytes, std::byte{2});
  const auto time = [&](auto copy) {
    Duration best = Duration::max();
    for (int round = 0; round < 3; ++round) {
      const TimePoint begin = clock.now();
      copy();
      best = std::min(best, clock.now() - begin);
    }
    return static_cast<double>(best.count());
  };
  const double plain = time([&] { std::memcpy(target.data(), source.data(), kProbeBytes); });
  const double streamed = time([&] { copy_streaming(target.data(), source.data(), kProbeBytes); });
  return {.streaming_from = plain > streamed * kGainMin ? kStreamingMin : SIZE_MAX};
}

}  // namespace

const CopyPlan& calibrated_copy(Clock& clock) {
  static const CopyPlan plan = measure(clock);
  return plan;
}

void copy_bytes(std::span<std::byte> target, std::span<const std::byte> source,
                const CopyPlan& plan) {
  if (source.size() >= plan.streaming_from) {
    copy_streaming(target.data(), source.data(), source.size());
  } else {
    std::memcpy(target.data(), source.data(), source.size());
  }
}

}  // namespace stator::transfer
