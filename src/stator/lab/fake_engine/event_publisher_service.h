// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/lab/fake_engine/fake_config.h"
#include "stator/lab/fake_engine/faults.h"
#include "stator/net/thread.h"

namespace stator::fake_engine {

/// One rank's ZeroMQ publisher, as vLLM and SGLang run it: a PUB socket whose messages are topic |
/// sequence number (8 bytes, big-endian) | payload, and a ROUTER that answers a start number with
/// every kept batch from there on and then an end marker (sequence number all ones).
///
/// A PUB endpoint with a wildcard, `::`, ipc or inproc, or port 0, is bound; any other is connected
/// to, as the real engines do (the subscriber binds then). tcp ports are those of `config` plus
/// `rank`.
///
/// One thread owns both sockets. publish() comes from any thread and never blocks: beyond
/// `queue_max` waiting batches the new one is dropped and counted
/// (stator_fake_event_batches_dropped_total), its number is used up.
class EventPublisher {
 public:
  /// Replay requests that wait for a delayed answer; more are ignored and counted
  /// (stator_fake_event_replays_dropped_total).
  static constexpr size_t kReplaysMax = 1024;

  /// kInvalidArgument naming the endpoint if a socket cannot be bound.
  static Result<std::unique_ptr<EventPublisher>> create(const EventConfig& config, uint32_t rank,
                                                        Release release, Metrics& metrics);
  ~EventPublisher();
  EventPublisher(const EventPublisher&) = delete;
  EventPublisher& operator=(const EventPublisher&) = delete;

  void publish(std::string payload, PendingFaults::Batch fate = PendingFaults::Batch::kSend);
  /// The next batch is number 0 again and nothing older can be replayed.
  void restart_sequence();
  void mute_replay(bool muted);
  /// From now on requests are answered so much later, with what is kept then.
  void delay_replay(Duration delay);

  /// As bound, with the port that was chosen.
  const std::string& endpoint() const;
  const std::string& replay_endpoint() const;
  /// Batches that were given a number.
  uint64_t published() const;

 private:
  struct Sockets;
  struct Numbered {
    uint64_t sequence;
    std::string payload;
  };
  struct Question {
    std::string asker;
    uint64_t start;
    TimePoint due;
  };
  EventPublisher(const EventConfig& config, Release release, std::unique_ptr<Sockets> sockets,
                 Metrics& metrics);

  void run();
  bool send_waiting();
  void take_question();
  std::chrono::milliseconds answer_due();
  void answer(const Question& question);
  void wake() STATOR_REQUIRES(mutex_);

  const EventConfig config_;
  const Release release_;
  const std::unique_ptr<Sockets> sockets_;
  const SystemClock clock_;  // the sockets wait in real time
  Counter dropped_;
  Counter replays_dropped_;
  std::deque<Question> questions_;  // of the thread

  mutable Mutex mutex_;
  std::deque<Numbered> queue_ STATOR_GUARDED_BY(mutex_);
  std::deque<Numbered> kept_ STATOR_GUARDED_BY(mutex_);  // for replay
  std::optional<Numbered> held_back_ STATOR_GUARDED_BY(mutex_);
  uint64_t next_sequence_ STATOR_GUARDED_BY(mutex_) = 0;
  bool muted_ STATOR_GUARDED_BY(mutex_) = false;
  Duration replay_delay_ STATOR_GUARDED_BY(mutex_){};
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  net::Thread thread_;
};

/// `endpoint` with `rank` added to a tcp port other than 0. Anything else is as it was.
std::string endpoint_of_rank(const std::string& endpoint, uint32_t rank);
/// Whether a publisher binds this endpoint rather than connecting to it.
bool is_bound_endpoint(std::string_view endpoint);

}  // namespace stator::fake_engine
