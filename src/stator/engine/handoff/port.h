// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/engine/handoff/giver.h"
#include "stator/engine/handoff/link.h"
#include "stator/engine/handoff/taker.h"
#include "stator/inference/handoff.h"
#include "stator/net/thread.h"
#include "stator/transfer/agent.h"

namespace stator::engine::handoff {

struct PortOptions {
  inference::WorkerRole role = inference::WorkerRole::kPrefill;  ///< or kDecode
  std::string engine_kind = "cpu";
  std::string engine_name = "engine";  ///< label on metrics
  storage::Digest space{};  ///< what blocks are: workers of equal ones understand each other
  uint32_t block_tokens = 16;
  uint64_t block_bytes = 0;                      ///< 0: of a simulated engine
  uint64_t staging_bytes = uint64_t{256} << 20;  ///< prefill: of prompts not fetched yet
  Duration lease = std::chrono::seconds(30);     ///< prefill: from the end of a prompt on
  Duration patience = std::chrono::seconds(30);  ///< decode: for a prompt to be computed
  std::string listen_host = "127.0.0.1";         ///< for takers on other hosts
};

/// What connects an engine to engines of the other role: a transfer agent (shared memory on one
/// host, else TCP), one thread, and the giver or the taker.
/// Thread-safety: that of its parts; close() by one, once no engine uses it any more.
class Port final : private Link {
  struct Private {};  // only open() can name it

 public:
  /// kUnavailable: no way to reach others could be opened.
  static Result<std::shared_ptr<Port>> open(PortOptions options, Clock& clock, Metrics& metrics);
  Port(Private key, PortOptions options, Clock& clock, Metrics& metrics);
  ~Port() override;

  const inference::HandoffAbility& ability() const { return ability_; }
  const PortOptions& options() const { return options_; }
  /// Null at decode workers.
  Giver* giver() { return giver_.get(); }
  /// Null at prefill workers.
  Taker* taker() { return taker_.get(); }
  /// Makes memory one that takers read into; it stays until close().
  Status register_memory(std::span<std::byte> memory);
  /// Prompts that others may still fetch.
  size_t owed() const { return giver_ == nullptr ? 0 : giver_->owed(); }
  /// Ends what is under way: takers' done() is called for all, nothing is called afterwards.
  void close();

 private:
  /// Agents that are kept in mind; of more, the one met first is forgotten.
  static constexpr size_t kPeersMax = 1024;

  Status start();
  std::string introduce(std::string_view metadata) override;
  bool send(std::string_view agent, const Message& message) override;
  void wake() override;
  void run();
  void take_mail();

  const PortOptions options_;
  Clock& clock_;
  Metrics& metrics_;
  inference::HandoffAbility ability_;
  Counter garbled_;

  Mutex mutex_;
  std::condition_variable_any work_;
  bool news_ STATOR_GUARDED_BY(mutex_) = false;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  std::deque<std::pair<std::string, uint64_t>> peers_ STATOR_GUARDED_BY(mutex_);  // and their lives

  std::unique_ptr<transfer::Agent> agent_;
  std::unique_ptr<Giver> giver_;
  std::unique_ptr<Taker> taker_;
  net::Thread thread_;
};

}  // namespace stator::engine::handoff
