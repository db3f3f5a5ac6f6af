// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "stator/continuity/journal_hub.h"
#include "stator/frontend/frontend_metrics.h"
#include "stator/frontend/generation.h"
#include "stator/frontend/request_meters.h"
#include "stator/frontend/stream_copies.h"
#include "stator/frontend/stream_gate.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"

namespace stator::frontend {

/// Where the journal of a stream is: here, and elsewhere if another frontend is there to keep it.
struct StreamCopy {
  StreamCopies::Serial serial = 0;
  continuity::StreamId own;
  bool kept = false;                                         ///< here
  continuity::StreamId stream;                               ///< its name elsewhere
  std::optional<continuity::JournalHub::HolderId> holder{};  ///< elsewhere
  size_t catching_up = 0;  ///< old parts that a new copy elsewhere does not have yet
  uint32_t losses = 0;     ///< in a row
  TimePoint renew_at{};    ///< no sooner
};

/// A client's request that a shard runs: its generation, and what belongs to the shard of it.
struct ActiveRequest final : net::ExchangeObserver {
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_client_gone(ActiveRequest& active) = 0;
  };
  /// What its client asked for, and where the answer goes.
  struct Wanted {
    GenerationPlan&& plan;
    net::HttpExchange& exchange;
    TimePoint received;
    net::ByteBudget* answers = nullptr;  ///< of answers being collected; null: unbounded
  };
  ActiveRequest(Owner& owner_in, std::unique_ptr<StreamGate> gate_in, const Wanted& wanted,
                const RequestSeries& series_in)
      : owner(owner_in),
        gate(std::move(gate_in)),
        generation(std::move(wanted.plan), wanted.exchange, wanted.received, wanted.answers),
        series(series_in),
        seats(generation.choices().size()) {}
  void on_client_gone(net::ClientGone) override { owner.on_client_gone(*this); }

  const AnswerSpec& answer() const { return generation.plan().answer; }
  request::RequestRun& run() { return generation.run(); }

  /// What the shard keeps for one choice.
  struct Seat {
    StagePlace place;  ///< in the metrics
    net::Timer retry;  ///< while it is parked
  };

  Owner& owner;
  const std::unique_ptr<StreamGate> gate;  ///< the generation's exchange; null: the client's own
  Generation generation;
  const RequestSeries& series;  ///< of the shard's metrics
  std::vector<Seat> seats;      ///< of the choices
  std::optional<StreamCopy> copy;
  bool queued = true;   ///< counts as before its first token
  net::Timer deadline;  ///< of requests that brought one
  /// Of the client's request; shared with it. Null: nothing needs one.
  std::shared_ptr<net::RequestNotes> notes;
};

/// A choice of a request, or its prompt at a prefill worker.
struct ChoiceRef {
  ActiveRequest* active = nullptr;
  uint32_t index = 0;
  bool is_prompt = false;
  ChoiceRun& run() const { return active->generation.choices()[index]; }
};

}  // namespace stator::frontend
