// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"

namespace stator::fake_engine {

/// What a fake server can be told to do wrong.
enum class FaultKind : uint8_t {
  kNone,
  // about requests
  kHang,     ///< nothing more after `after_tokens` tokens; the connection stays open
  kDie,      ///< the process kills itself (SIGKILL) after `after_tokens` tokens
  kRestart,  ///< all connections drop, `delay` later a fresh engine listens on the same port
  kClose,    ///< the connection closes after `after_tokens` tokens
  kSlow,     ///< every token comes `delay` later than the one before
  kStatus,   ///< answered with `status` and the dialect's error body
  kGarbage,  ///< answered with 200 and bytes that are no JSON and no event stream
  // about KV events
  kDropEvents,       ///< every `every`-th batch is not sent (replay still has it)
  kLoseEvents,       ///< every `every`-th batch is neither sent nor kept for replay
  kDuplicateEvents,  ///< every `every`-th batch is sent twice
  kReorderEvents,    ///< every `every`-th batch is sent after the next one
  kRestartSequence,  ///< sequence numbers start at 0 again, once
  kBlockSize,        ///< events and metrics announce `value` tokens per block
  kMuteReplay,       ///< replay requests get no answer
  kDelayReplay,      ///< replay requests are answered `delay` later
  // about hand-offs
  kExpireHandoffs,  ///< every open hand-off is stale at once, once
};

struct Fault {
  FaultKind kind = FaultKind::kNone;
  std::string path;           ///< only this path; empty: any that generates, kStatus, kGarbage: any
  uint32_t after_tokens = 0;  ///< counted over all choices of a request
  uint32_t skip = 0;          ///< requests that pass first
  uint32_t times = 1;         ///< requests (or batches) it hits; 0 = all from then on
  uint32_t every = 1;         ///< of KV event batches
  int status = 500;
  uint32_t value = 0;
  Duration delay{};
};

/// One fault from its JSON form, as /fault and --fault take it:
///   {"kind":"close","after_tokens":3,"times":2,"path":"/v1/completions","delay_ms":0}
/// kInvalidArgument naming the member.
Result<Fault> parse_fault(std::string_view json);

/// Decides which request and which event batch is hit. Pure; one thread. At most kFaultsMax wait.
class PendingFaults {
 public:
  static constexpr size_t kFaultsMax = 256;

  /// kOverloaded when kFaultsMax faults wait already.
  Status add(Fault fault);
  void clear() { faults_.clear(); }

  /// The fault that hits this request, kNone mostly. The first that matches wins.
  Fault take_for_request(std::string_view path);

  /// What happens to the next event batch.
  enum class Batch : uint8_t { kSend, kDrop, kLose, kDuplicate, kHoldBack };
  Batch take_for_batch();
  /// True once after each kRestartSequence.
  bool take_restart_sequence() { return take_once(FaultKind::kRestartSequence); }
  bool take_expire_handoffs() { return take_once(FaultKind::kExpireHandoffs); }
  /// Announced block size, 0 = the true one.
  uint32_t block_size() const;
  bool replay_muted() const;
  /// How long replay requests wait for their answer, 0 = not at all.
  Duration replay_delay() const;

  const std::vector<Fault>& waiting() const { return faults_; }

 private:
  bool take_once(FaultKind kind);

  std::vector<Fault> faults_;
  uint64_t batches_ = 0;
};

std::string_view name_of(FaultKind kind);

}  // namespace stator::fake_engine
