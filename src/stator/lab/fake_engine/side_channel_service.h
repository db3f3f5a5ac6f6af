// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/lab/fake_engine/fake_config.h"
#include "stator/lab/fake_engine/open_handoffs.h"
#include "stator/net/thread.h"

namespace stator::fake_engine {

/// A hand-off somebody else offered, as it stands in `kv_transfer_params`.
struct RemoteHandoff {
  std::string host;
  uint16_t port = 0;
  std::string engine_id;
  std::string request_id;
};

/// What the prefill side says about a claim; runs on the side channel's thread and may block it.
using AnswerClaim =
    std::function<ClaimOutcome(const std::string& engine_id, const std::string& request_id)>;
/// The answer to our own claim. `reachable` false: nobody answered in time.
struct ClaimAnswer {
  bool reachable = false;
  ClaimOutcome outcome = ClaimOutcome::kStale;
};

/// vLLM's NIXL side channel with our own hand-off check behind it: a ZeroMQ ROUTER that answers the
/// metadata request of a real decode server in its recorded shape (two frames: handshake payload,
/// clock) and, between fake servers, "claim | engine id | request id" with one byte: f(resh),
/// s(tale) or r(efused). The KV bytes themselves do not exist, so the claim stands in for the
/// transfer.
///
/// One thread owns all sockets. At most kClaimsMax claims wait at once; beyond, a claim counts as
/// unreachable.
class SideChannel {
 public:
  static constexpr size_t kClaimsMax = 1'024;

  /// `engine_id` names this server in hand-offs. kInvalidArgument naming the address.
  static Result<std::unique_ptr<SideChannel>> create(const HandoffConfig& config,
                                                     std::string engine_id, AnswerClaim answer,
                                                     const Clock& clock);
  ~SideChannel();
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;

  /// Asks the other server. `done` runs once, on the side channel's thread, or never after
  /// destruction.
  void claim(RemoteHandoff handoff, std::function<void(ClaimAnswer)> done);
  uint16_t port() const { return port_; }

 private:
  struct Sockets;
  struct Pending;
  SideChannel(const HandoffConfig& config, std::string engine_id, AnswerClaim answer,
              const Clock& clock, std::unique_ptr<Sockets> sockets);
  void run();
  void serve_one();
  bool start_claims();
  void finish_claims();

  const HandoffConfig config_;
  const std::string engine_id_;
  const AnswerClaim answer_;
  const Clock& clock_;
  const std::unique_ptr<Sockets> sockets_;
  const uint16_t port_;

  struct Wanted {
    RemoteHandoff handoff;
    std::function<void(ClaimAnswer)> done;
  };
  Mutex mutex_;
  std::vector<Wanted> wanted_ STATOR_GUARDED_BY(mutex_);
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  std::deque<std::unique_ptr<Pending>> pending_;  // the thread's
  net::Thread thread_;
};

}  // namespace stator::fake_engine
