// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>

#include "stator/app/cluster_client.h"
#include "stator/app/option_number.h"
#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/cli/planner_commands.h"
#include "stator/core/clock.h"
#include "stator/io/replace_file.h"
#include "stator/lab/profiler/profile.h"

namespace stator::cli {

Status run_profile(Invocation& invocation) {
  profiler::ProfilePlan plan;
  plan.url = option_of(invocation, "--url", "");
  if (plan.url.empty()) {
    return Error(Code::kInvalidArgument,
                 "profile needs --url http://HOST:PORT of an engine server");
  }
  while (plan.url.ends_with('/')) {
    plan.url.pop_back();
  }
  plan.model = option_of(invocation, "--model", "");
  plan.api_key = option_of(invocation, "--api-key", "");
  STATOR_CHECK(read_number<uint32_t>(invocation, "--max-context", 1, 1U << 30, plan.max_context));
  STATOR_CHECK(
      read_number<uint64_t>(invocation, "--max-kv-tokens", 1, 1ULL << 40, plan.max_kv_tokens));
  STATOR_CHECK(read_number<uint32_t>(invocation, "--prefill-points", 3, 1000, plan.prefill_points));
  STATOR_CHECK(read_number<uint32_t>(invocation, "--decode-points", 2, 100, plan.decode_points));
  STATOR_CHECK(
      read_number<uint32_t>(invocation, "--decode-tokens", 2, 100'000, plan.decode_tokens));
  STATOR_CHECK(
      read_number<uint32_t>(invocation, "--concurrency-max", 1, 1024, plan.concurrency_max));
  STATOR_CHECK(read_number<uint32_t>(invocation, "--repeats", 1, 1000, plan.repeats));
  STATOR_CHECK(read_number<uint32_t>(invocation, "--vocabulary", 11, 1U << 30, plan.vocabulary));
  STATOR_CHECK(read_number<uint32_t>(invocation, "--gpus", 1, 4096, plan.gpus));
  STATOR_CHECK(read_number(invocation, "--ttft", 1e-3, 1e9, plan.ttft_ms));
  STATOR_CHECK(read_number(invocation, "--itl", 1e-3, 1e9, plan.itl_ms));
  const SystemClock clock;
  STATOR_TRY(
      const profiler::Profile profile,
      profiler::measure(plan, clock, [](const std::string& text) { print_status(text + "\n"); }));
  const std::string folder = option_of(invocation, "--output", "profiling_results");
  for (const auto& [name, content] : profiler::render_files(profile)) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::error_code failed;
    std::filesystem::create_directories(path.parent_path(), failed);
    STATOR_CHECK(io::replace_file(path.string(), content, 0644), "--output");
  }
  if (invocation.options.contains("--json")) {
    print(profiler::render_json(profile));
    return {};
  }
  print(fmt::format(
      "prompts: {:.3f} ms + {:.5f} ms per token (off by {:.1f} %)\n"
      "decodes: {:.3f} ms + {:.4f} ms per sequence + {:.3g} ms per token of context (off by {:.1f} "
      "%)\nwritten to {}; use it: --timing profile:{}\n",
      profile.fit.prefill_base_ms, profile.fit.prefill_token_ms, profile.fit.prefill_error_percent,
      profile.fit.decode_base_ms, profile.fit.decode_sequence_ms, profile.fit.decode_context_ms,
      profile.fit.decode_error_percent, folder, folder));
  return {};
}

}  // namespace stator::cli
