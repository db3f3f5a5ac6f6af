// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

#include "stator/api/field_table.h"
#include "stator/api/generate_reader.h"

namespace stator::api {
namespace {

using Reader = GenerateReader;

constexpr double kAnyNumber = std::numeric_limits<double>::max();
constexpr uint64_t kUnsetRank = std::numeric_limits<uint32_t>::max();

// Names of `extra_fields` that mean something.
constexpr auto kExtraFields =
    std::to_array<std::string_view>({"completion_token_ids", "engine_data", "prompt_logprobs",
                                     "routed_experts", "stop_reason", "timing", "worker_id"});
// Of these, the one that no engine here says.
constexpr std::string_view kAbsentField = "routed_experts";

void unknown_key(FieldReader& in, const Path& path) {
  in.violation(path, "is unknown; nvext accepts no fields of other names");
  in.skip();
}

// ---- agent_hints

void read_priority(Reader& r, const Path& path) {
  r.options.nvext.agent_hints.priority = r.in.integer<int32_t>(path, INT32_MIN, INT32_MAX);
}
void read_strict_priority(Reader& r, const Path& path) {
  r.options.nvext.agent_hints.strict_priority = r.in.integer<uint32_t>(path, 0, UINT32_MAX);
}
void read_osl(Reader& r, const Path& path) {
  r.options.nvext.agent_hints.expected_output_tokens = r.in.integer<uint32_t>(path, 0, UINT32_MAX);
}
void read_speculative_prefill(Reader& r, const Path& path) {
  r.options.nvext.agent_hints.speculative_prefill = r.in.boolean(path).value_or(false);
}
void read_latency_sensitivity(Reader& r, const Path& path) {
  r.options.nvext.agent_hints.latency_sensitivity = r.in.number(path, {-kAnyNumber, kAnyNumber});
}

constexpr auto kAgentHints = std::to_array<Field<Reader>>({
    {"latency_sensitivity", read_latency_sensitivity},
    {"osl", read_osl},
    {"priority", read_priority},
    {"speculative_prefill", read_speculative_prefill},
    {"strict_priority", read_strict_priority},
});
static_assert(is_sorted_table<Reader>(kAgentHints));

// ---- router_config_override

void read_overlap_credit(Reader& r, const Path& path) {
  r.options.nvext.router_overrides.overlap_score_credit = r.in.number(path, {0, kAnyNumber});
}
void read_prefill_load_scale(Reader& r, const Path& path) {
  r.options.nvext.router_overrides.prefill_load_scale = r.in.number(path, {0, kAnyNumber});
}
void read_router_temperature(Reader& r, const Path& path) {
  r.options.nvext.router_overrides.router_temperature = r.in.number(path, {0, kAnyNumber});
}
void read_shared_cache_multiplier(Reader& r, const Path& path) {
  r.options.nvext.router_overrides.shared_cache_multiplier = r.in.number(path, {0, kAnyNumber});
}
void read_assume_kv_reuse(Reader& r, const Path& path) {
  r.options.nvext.router_overrides.assume_kv_reuse = r.in.boolean(path);
}
void read_track_prefill_tokens(Reader& r, const Path& path) {
  r.options.nvext.router_overrides.track_prefill_tokens = r.in.boolean(path);
}
void read_overlap_weight(Reader& r, const Path& path) {
  const auto weight = r.in.number(path, {0, kAnyNumber});
  r.options.nvext.router_overrides.prefill_load_scale = weight;
  if (weight == 0.0) {
    r.options.nvext.router_overrides.overlap_score_credit = 0.0;
  }
}

constexpr auto kRouterOverrides = std::to_array<Field<Reader>>({
    {"assume_kv_reuse", read_assume_kv_reuse},
    {"overlap_score_credit", read_overlap_credit},
    {"overlap_score_weight", read_overlap_weight},
    {"prefill_load_scale", read_prefill_load_scale},
    {"router_temperature", read_router_temperature},
    {"shared_cache_multiplier", read_shared_cache_multiplier},
    {"track_prefill_tokens", read_track_prefill_tokens},
});
static_assert(is_sorted_table<Reader>(kRouterOverrides));

// ---- nvext

template <size_t kCount>
void read_strict_object(Reader& r, const Path& path,
                        const std::array<Field<Reader>, kCount>& table) {
  r.in.object(path, [&](std::string_view key, const Path& member) {
    if (!read_known<Reader>(table, key, r, member)) {
      unknown_key(r.in, member);
    }
  });
}

std::optional<uint64_t> read_instance(Reader& r, const Path& path) {
  return r.in.integer<uint64_t>(path, 0, UINT64_MAX);
}
std::optional<uint32_t> read_rank(Reader& r, const Path& path) {
  const auto rank = r.in.integer<uint32_t>(path, 0, UINT32_MAX);
  return rank == kUnsetRank ? std::nullopt : rank;
}

void read_agent_hints(Reader& r, const Path& path) {
  r.options.nvext.agent_hints = {};
  read_strict_object(r, path, kAgentHints);
}
void read_router_config_override(Reader& r, const Path& path) {
  read_strict_object(r, path, kRouterOverrides);
}
void read_annotations(Reader& r, const Path& path) {
  r.options.nvext.annotations = r.in.strings(path).value_or(std::vector<std::string>());
}
void read_backend_instance_id(Reader& r, const Path& path) {
  r.options.nvext.backend_instance_id = read_instance(r, path);
}
void read_nvext_cache_salt(Reader& r, const Path& path) {
  r.nvext_cache_salt = read_salt(r.in, path);
}
void read_decode_worker_id(Reader& r, const Path& path) {
  r.options.nvext.decode_worker_id = read_instance(r, path);
}
void read_dp_rank(Reader& r, const Path& path) {
  r.options.nvext.dp_rank = read_rank(r, path);
}
void read_extra_fields(Reader& r, const Path& path) {
  auto& names = r.options.nvext.extra_fields;
  names = r.in.strings(path).value_or(std::vector<std::string>());
  for (size_t i = 0; i < names.size(); ++i) {
    if (!std::ranges::binary_search(kExtraFields, names[i])) {
      r.in.violation(Path(path, i),
                     fmt::format("must be one of {}", fmt::join(kExtraFields, ", ")));
    } else if (names[i] == kAbsentField) {
      r.in.unsupported(Path(path, i), fmt::format("{} is not supported", names[i]));
    }
  }
}
void read_greed_sampling(Reader& r, const Path& path) {
  r.options.nvext.greed_sampling = r.in.boolean(path).value_or(false);
}
void read_max_thinking_tokens(Reader& r, const Path& path) {
  r.options.nvext.max_thinking_tokens = r.in.integer<uint32_t>(path, 0, UINT32_MAX);
}
void read_metadata_upload(Reader& r, const Path& path) {
  if (r.in.raw_object(path)) {
    r.in.unsupported(path, "is not supported");
  }
}
void read_prefill_dp_rank(Reader& r, const Path& path) {
  r.options.nvext.prefill_dp_rank = read_rank(r, path);
}
void read_prefill_worker_id(Reader& r, const Path& path) {
  r.options.nvext.prefill_worker_id = read_instance(r, path);
}
void read_request_timestamp(Reader& r, const Path& path) {
  r.options.nvext.request_timestamp_ms = r.in.number(path, {0, kAnyNumber});
}

void read_router_targets(Reader& r, const Path& path) {
  RouterOverrides& overrides = r.options.nvext.router_overrides;
  r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "ttft_target") {
      overrides.ttft_target_ms = r.in.number(member, {0, kAnyNumber});
    } else if (key == "itl_target") {
      overrides.itl_target_ms = r.in.number(member, {0, kAnyNumber});
    } else {
      unknown_key(r.in, member);
    }
  });
}

/// A longer list is refused.
void check_names(Reader& r, const Path& path, size_t count) {
  if (count > kRoutingNamesMax) {
    r.in.violation(path, fmt::format("must have at most {} entries", kRoutingNamesMax));
  }
}

void read_routing_constraints(Reader& r, const Path& path) {
  RoutingConstraints& constraints = r.options.nvext.routing_constraints;
  constraints = {};
  r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "required_taints") {
      constraints.required_taints = r.in.strings(member).value_or(std::vector<std::string>());
      check_names(r, member, constraints.required_taints.size());
    } else if (key == "preferred_taints") {
      constraints.preferred_taints.clear();
      r.in.object(member, [&](std::string_view taint, const Path& weight_path) {
        std::string name(taint);
        if (const auto weight = r.in.number_f32(weight_path, {-1e6, 1e6})) {
          constraints.preferred_taints.emplace_back(std::move(name), *weight);
        }
      });
      check_names(r, member, constraints.preferred_taints.size());
    } else {
      unknown_key(r.in, member);
    }
  });
}

void read_token_data(Reader& r, const Path& path) {
  r.options.nvext.token_data = r.in.token_ids(path).value_or(std::vector<TokenId>());
}
void read_use_raw_prompt(Reader& r, const Path& path) {
  r.options.nvext.use_raw_prompt = r.in.boolean(path).value_or(false);
}

constexpr auto kFields = std::to_array<Field<Reader>>({
    {"agent_hints", read_agent_hints},
    {"annotations", read_annotations},
    {"backend_instance_id", read_backend_instance_id},
    {"cache_salt", read_nvext_cache_salt},
    {"decode_worker_id", read_decode_worker_id},
    {"dp_rank", read_dp_rank},
    {"extra_fields", read_extra_fields},
    {"greed_sampling", read_greed_sampling},
    {"max_thinking_tokens", read_max_thinking_tokens},
    {"metadata_upload", read_metadata_upload},
    {"prefill_dp_rank", read_prefill_dp_rank},
    {"prefill_worker_id", read_prefill_worker_id},
    {"request_timestamp_ms", read_request_timestamp},
    {"router", read_router_targets},
    {"router_config_override", read_router_config_override},
    {"routing_constraints", read_routing_constraints},
    {"token_data", read_token_data},
    {"use_raw_prompt", read_use_raw_prompt},
});
static_assert(is_sorted_table<Reader>(kFields));

}  // namespace

void read_nvext(GenerateReader& reader, const Path& path) {
  read_strict_object(reader, path, kFields);
}

}  // namespace stator::api
