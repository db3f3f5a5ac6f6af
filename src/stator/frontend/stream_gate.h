// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "stator/continuity/journal_hub.h"
#include "stator/net/http_server.h"

namespace stator::frontend {

/// What `id:` of an event says, and Last-Event-ID of who wants the rest: which stream, who keeps
/// its copy, which event. As text "<32 hex digits>-<hex>.<decimal>".
struct EventId {
  continuity::StreamId stream;
  continuity::JournalHub::HolderId holder = 0;
  uint64_t event = 0;  ///< from 0
};
std::string to_string(const EventId& id);
std::optional<EventId> parse_event_id(std::string_view text);

/// The exchange of an event stream whose journal another process keeps: gives every event its id,
/// leaves out those that the client has, and holds back what the copy does not have yet, so that
/// no client knows more than is left when this process dies.
///
/// Without a copy elsewhere ids name this process, which has one of its own. Without any, the next
/// event takes the client's id back (an empty `id:`), so that it begins anew rather than getting
/// twice what came without one.
///
/// G1  What a step wrote leaves when the copy has it, or when there is no copy any more; what is
///     written outside of steps leaves after what was written before.
/// G2  Every event has its number, whether it leaves or not; comments have none.
/// G3  The id of an event names a holder that has all up to it.
///
/// On the shard's loop; `exchange` outlives it. What is held is bounded by the time a copy may
/// take.
class StreamGate final : public net::HttpExchange {
 public:
  /// `first` numbers the events; the client has those before `first.event`.
  StreamGate(net::HttpExchange& exchange, const EventId& first)
      : exchange_(exchange), id_(first), has_id_(first.event > 0) {}

  void begin_step() { in_step_ = true; }
  enum class Copied : uint8_t { kNothing, kUnderWay };
  /// kUnderWay: what the step wrote waits for one more confirm().
  void end_step(Copied copied);
  /// The copy has the oldest step it did not have.
  void confirm();
  /// Events that leave from now on name this copy: it has all that left, and all that waits it will
  /// have by its confirm().
  void rename(continuity::StreamId stream, continuity::JournalHub::HolderId holder);
  /// There is no copy elsewhere any more, nothing waits for it; `own` is the one of this process.
  void fall_back(continuity::StreamId stream, continuity::JournalHub::HolderId own);
  /// There is no copy any more, nothing waits for it; later events have no id.
  void give_up();
  /// The answer is complete and has left; the exchange is over.
  bool done() const { return done_; }

  net::HttpRequest& request() override { return exchange_.request(); }
  std::string client_address() override { return exchange_.client_address(); }
  net::Shard& shard() override { return exchange_.shard(); }
  void set_observer(net::ExchangeObserver* observer) override { exchange_.set_observer(observer); }
  void respond(int status, std::string_view content_type, std::string_view body,
               std::span<const net::HttpHeader> headers) override;
  void start_stream(int status, std::string_view content_type,
                    std::span<const net::HttpHeader> headers) override {
    exchange_.start_stream(status, content_type, headers);
  }
  void write(std::string_view bytes) override;
  void finish() override;
  void abort() override;
  size_t buffered_bytes() const override { return exchange_.buffered_bytes(); }
  bool above_high_water() const override { return exchange_.above_high_water(); }

 private:
  struct Frame {
    std::string bytes;
    std::optional<uint64_t> event;  // none: a comment
  };
  void flush();
  void send(const Frame& frame);

  net::HttpExchange& exchange_;
  EventId id_;  // its event: the first that the client lacks
  uint64_t next_event_ = 0;
  bool copied_ = true;
  bool in_step_ = false;
  bool finished_ = false;
  bool done_ = false;
  bool has_id_ = false;         // the client has an id of this stream, or of where it began
  std::deque<Frame> held_;      // what has not left
  uint64_t left_ = 0;           // frames that have
  uint64_t confirmed_ = 0;      // where the newest step ends that the copy has
  std::deque<uint64_t> waits_;  // where those end that it has not
};

}  // namespace stator::frontend
