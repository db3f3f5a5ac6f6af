// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace stator::router {

/// What our own requests cost one (worker, rank) right now. Written only by leases, from any shard;
/// read by selection, which may see another request half applied, never a torn number.
///
/// L1  A load never drops below what the leases that are alive have taken.
/// L2  When no lease is alive, every number is zero.
struct WorkerLoad {
  std::atomic<int64_t> requests{0};
  std::atomic<int64_t> prefill_tokens{0};  ///< of requests that have not produced a token yet
  std::atomic<int64_t> blocks{0};          ///< KV blocks held or soon to be held
};

/// One request's share of a worker's load: taken at selection, lives in the response stream, given
/// back by the destructor however the stream ends. Counting is ownership, so a stream that breaks,
/// is cancelled, retried or dropped cannot leak load. Move-only; use on one thread at a time.
class LoadLease {
 public:
  struct Amount {
    int64_t prefill_tokens = 0;
    int64_t blocks = 0;
  };

  LoadLease() noexcept = default;
  /// The load is shared because a worker may leave the router while its last streams still end.
  LoadLease(std::shared_ptr<WorkerLoad> load, Amount amount) noexcept;
  LoadLease(LoadLease&& other) noexcept;
  LoadLease& operator=(LoadLease&& other) noexcept;
  LoadLease(const LoadLease&) = delete;
  LoadLease& operator=(const LoadLease&) = delete;
  ~LoadLease();

  /// The first output token arrived: the prompt is no longer work to come. Idempotent.
  void mark_prefill_completed() noexcept;
  /// The output grew by this many blocks.
  void add_blocks(int64_t count) noexcept;
  /// Gives everything back now; the lease is empty afterwards.
  void release() noexcept;
  bool empty() const noexcept { return load_ == nullptr; }

 private:
  std::shared_ptr<WorkerLoad> load_;
  Amount amount_;
};

}  // namespace stator::router
