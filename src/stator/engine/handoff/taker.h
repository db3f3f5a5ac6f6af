// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/engine/handoff/link.h"
#include "stator/engine/handoff/messages.h"
#include "stator/inference/handoff.h"
#include "stator/storage/block_name.h"
#include "stator/transfer/agent.h"

namespace stator::engine::handoff {

/// The decode side: claims a prompt that another engine computes, reads its blocks as they become
/// complete, checks them, and says how many of the first are there.
///
///   taker.take({.handoff = request.handoff, .names = …, .begin = 4, .places = slots,
///               .done = wake});
///
///   claimed ──kGranted──► pulling ──all there, kEnd, trouble──► settling ──no transfer──► done()
///
/// K1  A block counts only if namespace, tokens (its check) and CRC-32C agree with what was told;
///     what is reported is a prefix of them.
/// K2  `done` is called exactly once, when nothing writes to the places any more: after
///     `patience` and a transfer's deadline at the latest.
/// K3  Whatever goes wrong is a shorter prefix: refused, lost, late, damaged, counted by reason.
/// Threads: take() by any, the rest by the port's; `done` is called by the port's.
class Taker {
 public:
  struct Options {
    std::string engine_name;
    std::string kind;
    storage::Digest space{};
    uint64_t block_bytes = 0;
    std::string metadata;  ///< of the transfer agent, without any of its memory
    Duration patience = std::chrono::seconds(30);  ///< for the giver to compute it
    Duration silence = std::chrono::seconds(2);    ///< of the giver until it counts as lost
  };
  Taker(Options options, transfer::Agent& agent, Link& link, Clock& clock, Metrics& metrics);
  ~Taker();
  Taker(const Taker&) = delete;
  Taker& operator=(const Taker&) = delete;

  struct Want {
    inference::Handoff handoff;
    std::vector<storage::BlockName> names;     ///< of blocks `begin` and later
    size_t begin = 0;                          ///< in the prompt
    std::vector<std::span<std::byte>> places;  ///< parallel to names, in registered memory
    std::function<void(size_t)> done;          ///< how many of the first are in their places
  };
  /// No names: the prompt is here already, and its giver is told.
  void take(Want want);

  void on_message(std::string_view peer, const Message& message);
  /// Goes on with what has come. When to come back at the latest.
  TimePoint advance(TimePoint now);
  /// Gives everything up; done() has been called for all when none() holds after advance().
  void close();
  bool none() const;

 private:
  struct Pull;
  enum class End : uint8_t {
    kWhole,     ///< all wanted blocks came
    kShort,     ///< all that the giver had, which was less
    kRefused,   ///< the giver's words: Message::verdict
    kForeign,   ///< of another namespace, or of other tokens
    kDamaged,   ///< a checksum was wrong
    kLost,      ///< the giver cannot be reached any more
    kLate,      ///< it took longer than `patience`
    kClosing,   ///< this engine stops
    kNeedless,  ///< everything was here
  };
  static std::string_view describe(End end);

  void start(Pull& pull, TimePoint now);
  void accept(Pull& pull, const Message& ready);
  bool post(Pull& pull, size_t first, std::span<const Ready> ready);
  void settle_transfers(Pull& pull);
  void verify(Pull& pull, size_t first, std::span<const Ready> ready);
  void watch(Pull& pull, TimePoint now);
  void stop(Pull& pull, End end);
  void finish(Pull& pull, TimePoint now);

  const Options options_;
  transfer::Agent& agent_;
  Link& link_;
  Clock& clock_;
  Metrics& metrics_;

  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Pull>> fresh_ STATOR_GUARDED_BY(mutex_);
  bool closing_ STATOR_GUARDED_BY(mutex_) = false;
  size_t live_ STATOR_GUARDED_BY(mutex_) = 0;

  std::map<uint64_t, std::unique_ptr<Pull>> pulls_;  // the port's thread only

  Counter blocks_;
  Counter bytes_;
  Counter early_bytes_;
  Counter damaged_;
  Histogram seconds_;
  Histogram tail_seconds_;
};

}  // namespace stator::engine::handoff
