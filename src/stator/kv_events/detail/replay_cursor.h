// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace stator::kv_events::detail {

/// Decides what a stream of numbered messages that may lose some, with an optional replay of recent
/// ones, means: which to deliver, when to ask for a replay, when all history is void. Pure.
///
///             on_connected                    on_replay_end
///   idle ────────────────────► replaying ───────────────────────► live
///                                 ▲                                 │
///                                 └──── gap, new connection, ◄──────┘
///                                       number that goes back
///
/// C1  Delivered numbers are contiguous since the last reset.
/// C2  A replay that continues begins with the last delivered message, which must come back byte
///     for byte (it carries a time stamp): else this is another life of the publisher, and a reset
///     comes before anything else. So a restart is seen however far its numbers got meanwhile.
/// C3  At most kWaitingMax messages and kWaitingBytesMax bytes wait for a replay to end; what does
///     not fit is asked for again.
class ReplayCursor {
 public:
  struct Deliver {
    std::string payload;
  };
  /// What was delivered before is void: clear, then go on.
  struct Reset {};
  struct AskReplay {
    uint64_t from = 0;
  };
  using Step = std::variant<Deliver, Reset, AskReplay>;
  using Steps = std::vector<Step>;

  static constexpr size_t kWaitingMax = 4096;
  static constexpr size_t kWaitingBytesMax = size_t{64} << 20;
  /// Replays in a row that bring nothing new, after which a gap is accepted.
  static constexpr uint32_t kFruitlessMax = 3;

  explicit ReplayCursor(bool can_replay) : can_replay_(can_replay) {}

  /// The subscription stands, for the first time or again.
  Steps on_connected();
  Steps on_live(uint64_t sequence, std::string payload);
  /// Nothing came for a while: asks whether that is all there is, for the newest message may be
  /// lost like any other and nothing after it tells.
  Steps on_quiet();
  /// Answers to the newest AskReplay only.
  Steps on_replay(uint64_t sequence, std::string payload);
  Steps on_replay_end();
  /// The replay endpoint does not answer and the caller gave up asking.
  Steps on_replay_failed();

  bool replaying() const { return mode_ == Mode::kReplaying; }
  size_t waiting() const { return waiting_.size(); }
  struct Stats {
    uint64_t gaps = 0;      ///< messages were missing
    uint64_t replays = 0;   ///< that ended without loss
    uint64_t restarts = 0;  ///< the publisher began another life
    uint64_t resets = 0;    ///< history became void, for any reason
  };
  const Stats& stats() const { return stats_; }

 private:
  enum class Mode : uint8_t { kIdle, kReplaying, kLive };
  struct Message {
    uint64_t sequence;
    std::string payload;
  };

  enum class Cause : uint8_t { kDoubt, kQuiet };
  void ask(Cause cause, Steps& out);
  void restart(Steps& out);
  void reset(Steps& out);
  void deliver(Message message, Steps& out);
  void drain(Steps& out);
  void wait_for_replay(Message message);

  const bool can_replay_;
  Mode mode_ = Mode::kIdle;
  std::optional<uint64_t> next_;       // after the last delivered one
  uint64_t last_print_ = 0;            // hash of the last delivered payload
  std::optional<uint64_t> last_live_;  // on this connection; a publisher never goes back
  Cause cause_ = Cause::kDoubt;        // of the running replay
  bool verify_ = false;                // the next replayed message must be the last delivered one
  bool progress_ = false;              // this replay delivered something
  uint32_t fruitless_ = 0;
  std::deque<Message> waiting_;
  size_t waiting_bytes_ = 0;
  Stats stats_;
};

}  // namespace stator::kv_events::detail
