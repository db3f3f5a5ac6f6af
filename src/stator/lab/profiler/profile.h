// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/perf/profile_timing.h"

namespace stator::profiler {

/// What is measured. Names as in the reference's profiler.
struct ProfilePlan {
  std::string url;    ///< of an OpenAI-compatible server
  std::string model;  ///< empty: the first it lists
  std::string api_key;
  uint32_t max_context = 0;    ///< tokens; 0: as the server says
  uint64_t max_kv_tokens = 0;  ///< of its KV cache; 0: as the server says
  uint32_t prefill_points = 16;
  uint32_t decode_points = 6;
  uint32_t decode_tokens = 500;  ///< of each answer
  uint32_t concurrency_max = 64;
  uint32_t repeats = 3;        ///< of each prompt length; the median counts
  uint32_t vocabulary = 1000;  ///< prompts are ids from 10 to below
  uint32_t gpus = 1;
  double ttft_ms = 0, itl_ms = 0;  ///< goals, for what is picked; 0: none
};

struct DecodePoint {
  uint32_t input_tokens = 0, concurrency = 0;
  double itl_ms = 0;
};
struct Profile {
  ProfilePlan plan;                                  ///< with what the server said
  std::vector<std::pair<uint32_t, double>> prefill;  ///< tokens, ms
  std::vector<DecodePoint> decode;
  perf::ProfileFit fit;
  double elapsed_s = 0;
};

/// Prompt lengths: from 100 to max_context − 512. Pure.
std::vector<uint32_t> prefill_lengths(const ProfilePlan& plan);
/// Prompt lengths and concurrencies whose KV fits. Pure.
std::vector<std::pair<uint32_t, uint32_t>> decode_grid(const ProfilePlan& plan);

/// Measures. `progress` is told each point in words. Blocks for as long as the server takes;
/// threads of its own, one per stream. kInvalidArgument: the plan leaves no point; else what the
/// server did wrong.
Result<Profile> measure(ProfilePlan plan, const Clock& clock,
                        const std::function<void(const std::string&)>& progress);

/// Files by their names below the output folder: NPZ and JSON in the reference's shapes, the table
/// of a simulated engine, profile.json.
std::vector<std::pair<std::string, std::string>> render_files(const Profile& profile);
/// profile.json alone: fits with their errors, picks, the step model in words for --timing.
std::string render_json(const Profile& profile);

}  // namespace stator::profiler
