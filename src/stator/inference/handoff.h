// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stator::inference {

/// Which part of a request an engine is asked for.
enum class Phase : uint8_t {
  kWhole,    ///< prompt and answer
  kPrefill,  ///< the prompt and one token; its KV is kept for somebody else
  kDecode,   ///< the answer, with KV that somebody else has computed
};

/// What an engine is there for.
enum class WorkerRole : uint8_t { kAggregated, kPrefill, kDecode };
inline constexpr size_t kWorkerRoleCount = 3;
/// "aggregated", "prefill", "decode": on the command line, in records and on metrics.
std::string_view to_string(WorkerRole role);
std::optional<WorkerRole> find_role(std::string_view name);

/// What an engine can do with prompts of others.
struct HandoffAbility {
  WorkerRole role = WorkerRole::kAggregated;
  /// Giver and taker understand each other iff theirs are equal: engine, release and carrier
  /// ("vllm-0.32.0/nixl"). Empty: it neither gives nor takes.
  std::string kind;
  /// "host:port" where a taker meets this giver: both are asked at once. Empty: the giver's answer
  /// names what the taker needs, so it is asked first.
  std::string meeting_point;
  /// A decode engine that can also compute prompts itself.
  bool runs_whole = true;

  friend bool operator==(const HandoffAbility&, const HandoffAbility&) = default;
};

/// A prompt's KV on its way from the engine that computed it to the one that goes on: given once,
/// taken once. The giver keeps the blocks until they were taken or the lease is over, and a taker
/// may not notice that they are gone, so nobody may use it twice or late.
struct Handoff {
  uint64_t id = 0;        ///< of this transfer: both engines know the request by it
  std::string kind;       ///< HandoffAbility::kind of the giver
  std::string payload;    ///< the engine's own words, verbatim; opaque
  uint32_t lease_ms = 0;  ///< how long the giver keeps the blocks from then on; 0 = for ever
  /// From the giver's being asked to the last moment when it had not answered: the lease began
  /// later than that.
  uint32_t computed_ms = 0;

  friend bool operator==(const Handoff&, const Handoff&) = default;
};

/// Beyond this a payload is not carried.
inline constexpr size_t kHandoffBytesMax = size_t{4} << 20;

}  // namespace stator::inference
