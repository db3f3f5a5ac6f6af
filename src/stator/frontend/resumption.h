// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stator/continuity/journal_hub.h"
#include "stator/core/flat_map.h"
#include "stator/frontend/frontend_metrics.h"
#include "stator/frontend/prepare_job.h"
#include "stator/frontend/stream_gate.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"

namespace stator::frontend {

/// Clients that come back with Last-Event-ID for the rest of a stream whose frontend is lost: the
/// stream's journal is fetched from who keeps it, and goes with the request through its
/// preparation. Home loop: the shard's.
///
/// Z1  Every exchange given to begin() comes back by exactly one of the owner's calls.
class Resumption {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    /// The journal is there: `job->resumed`.
    virtual void on_journal(net::HttpExchange& exchange, std::shared_ptr<PrepareJob> job) = 0;
    virtual void on_no_journal(net::HttpExchange& exchange, const PrepareJob& job, Error error) = 0;
    /// The client left first; the exchange is gone.
    virtual void on_client_left(const PrepareJob& job) = 0;
  };
  Resumption(continuity::JournalHub& hub, net::Shard& shard, FrontendMetrics& metrics, Owner& owner)
      : hub_(hub), shard_(shard), metrics_(metrics), owner_(owner) {}

  /// False: it is no return. Gives the job its hash, too.
  bool begin(net::HttpExchange& exchange, const std::shared_ptr<PrepareJob>& job);
  size_t waiting() const { return waiting_.size(); }
  /// Gives every exchange back with `error`.
  void fail_all(const Error& error);

 private:
  struct Waiting final : net::ExchangeObserver {
    Waiting(Resumption& owner_in, net::HttpExchange& exchange_in,
            std::shared_ptr<PrepareJob> job_in, const EventId& last_in)
        : owner(owner_in), exchange(exchange_in), job(std::move(job_in)), last(last_in) {}
    void on_client_gone(net::ClientGone) override { owner.client_gone(*this); }
    Resumption& owner;
    net::HttpExchange& exchange;
    const std::shared_ptr<PrepareJob> job;  // shared with its preparation later
    const EventId last;                     // that the client has
  };
  using Parts = Result<std::vector<std::string>>;
  std::unique_ptr<Waiting> take(Waiting* waiting);
  void on_fetched(Waiting* waiting, Parts& parts);
  void client_gone(Waiting& waiting);

  continuity::JournalHub& hub_;
  net::Shard& shard_;
  FrontendMetrics& metrics_;
  Owner& owner_;
  FlatMap<Waiting*, std::unique_ptr<Waiting>> waiting_;         // bounded by frontend.inflight_max
  const std::shared_ptr<int> alive_ = std::make_shared<int>();  // for answers that come too late
};

}  // namespace stator::frontend
