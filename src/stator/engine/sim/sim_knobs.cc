// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/sim/sim_knobs.h"

#include <string_view>

namespace stator::engine {

void describe(ConfigSchema& schema, SimKnobs& knobs, SimFlags flags) {
  const auto names = [&](std::string_view flag, std::string_view brief) {
    return ConfigNames{.flag = flag, .flag_peer = flags == SimFlags::kShortToo ? brief : ""};
  };
  schema.choice("sim.rules", knobs.rules, {"vllm", "trtllm", "trtllm-max-utilization", "sglang"},
                "whose scheduling rules the simulated engine follows",
                names("sim-rules", "engine"));
  schema.text("sim.timing", knobs.timing,
              "how long a simulated pass takes: linear, polynomial, table:…, roofline:… "
              "(docs/reference/simulation.md)",
              names("sim-timing", "timing"));
  schema.number("sim.speedup", knobs.speedup, 0, 1e9,
                "divides simulated time, 0 = no waiting at all (live engines)",
                names("sim-speedup", "speedup"));
  schema.number("sim.decode_speedup", knobs.decode_speedup, kSpeedupMin, 1e9,
                "divides the simulated time of decodes further",
                names("sim-decode-speedup", "decode-speedup"));
  schema.text("sim.draft_acceptance", knobs.draft_acceptance,
              "speculative decoding: probabilities with commas, that draft token 1, 2, … is "
              "accepted once all before it were; empty = off",
              names("sim-draft-acceptance", "draft-acceptance"));
  schema.boolean("sim.sglang_lpm", knobs.sglang.longest_prefix_first,
                 "rules sglang: longest cached prefix first (schedule-policy lpm)",
                 names("sim-sglang-lpm", "sglang-lpm"));
  schema.boolean("sim.sglang_mixed_chunk", knobs.sglang.mixed_chunk,
                 "rules sglang: decodes share the passes of prompts",
                 names("sim-sglang-mixed-chunk", "sglang-mixed-chunk"));
  schema.number("sim.kv_bytes_per_token", knobs.kv_bytes_per_token, 0, 1e12,
                "of KV, to load it from host memory or (stator sim) to hand a prompt over; 0 = "
                "that takes no time",
                names("sim-kv-bytes-per-token", "kv-bytes-per-token"));
  schema.number("sim.host_gb_per_s", knobs.host_gb_per_s, 1e-6, 1e9,
                "bandwidth from host memory, see engine.host_blocks",
                names("sim-host-gb-per-s", "host-gb-per-s"));
  schema.number("sim.step_us", knobs.linear.step_us, 0, 1e9,
                "timing linear: fixed cost of a step, µs");
  schema.number("sim.prefill_token_us", knobs.linear.prefill_token_us, 0, 1e9,
                "timing linear: cost of one prompt token, µs");
  schema.number("sim.decode_sequence_us", knobs.linear.decode_sequence_us, 0, 1e9,
                "timing linear: cost of one decoding sequence per step, µs");
}

}  // namespace stator::engine
