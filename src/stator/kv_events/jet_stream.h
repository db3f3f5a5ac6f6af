// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/kv_events/nats_connection.h"

namespace stator::kv_events {

struct StreamConfig {
  std::string name;
  std::vector<std::string> subjects;
  uint64_t bytes_max = 0;  ///< beyond it the oldest go, or new ones are refused
  bool refuse_new = false;
  bool rollup = false;  ///< a message may replace all before it on its subject
};

/// What a stream holds; an empty one has `messages` 0 and `first` = `last` + 1.
struct StreamState {
  uint64_t messages = 0;
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t bytes = 0;
};

struct StoredMessage {
  uint64_t sequence = 0;
  std::string payload;
};

/// The durable side of a NATS server: streams that keep messages on its disk.
///
/// Every call waits for the server's word, at most kWait; none from a listener's callback. Errors:
/// kUnavailable when the server is away or was started without `-js` (the message says which),
/// kNotFound for a stream nobody made, kTooLarge, kAlreadyExists for a `replaces` that lost.
/// Thread-safe.
class JetStream {
 public:
  static constexpr int64_t kWaitMs = 2'000;

  /// `connection` outlives it. Asks the server nothing yet.
  static Result<std::unique_ptr<JetStream>> open(NatsConnection& connection);
  virtual ~JetStream() = default;

  /// Makes the stream unless it is there, whatever its settings are then.
  virtual Status ensure_stream(const StreamConfig& config) = 0;
  virtual Status delete_stream(const std::string& stream) = 0;
  virtual Result<StreamState> state(const std::string& stream) = 0;

  struct Publication {
    std::string subject;
    std::string_view payload;
    std::string id{};  ///< the server drops a second one of the same id; empty: none
    /// The sequence of the newest message on that subject, 0 = none: else it is refused.
    std::optional<uint64_t> replaces{};
    bool rollup = false;  ///< all before it on that subject go
  };
  /// The message's sequence in its stream.
  virtual Result<uint64_t> publish(const Publication& message) = 0;

  /// Nothing when the subject has no message.
  virtual Result<std::optional<StoredMessage>> newest(const std::string& stream,
                                                      const std::string& subject) = 0;
  /// Those on `subject` from sequence `from` on, in order, the last of them `to`, which must be
  /// there. An error of `visit` ends it.
  using Visitor = std::function<Status(uint64_t sequence, std::string_view payload)>;
  struct Range {
    std::string stream;
    std::string subject;
    uint64_t from = 1;
    uint64_t to = 0;
  };
  virtual Status read(const Range& range, const Visitor& visit) = 0;
  /// Removes those before `sequence`, on all subjects.
  virtual Status purge_below(const std::string& stream, uint64_t sequence) = 0;
  /// Removes all on one subject.
  virtual Status purge_subject(const std::string& stream, const std::string& subject) = 0;
  /// A name nobody else has.
  virtual std::string make_id() = 0;
};

}  // namespace stator::kv_events
