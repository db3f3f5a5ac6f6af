// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/transfer/backend.h"
#include "stator/transfer/movers.h"
#include "stator/transfer/registrations.h"

namespace stator::transfer {

struct AgentOptions {
  uint32_t threads = 2;                          ///< that move bytes
  Duration deadline = std::chrono::seconds(30);  ///< of a transfer without one of its own
  uint32_t posted_max = 65'536;      ///< transfers waiting or running; beyond: kNotAllowed
  uint64_t inline_bytes = 64 << 10;  ///< a copy so small is done by post() itself
  Duration spin = std::chrono::microseconds(30);  ///< threads look for work so long before sleeping
  uint32_t notifications_max = 65'536;  ///< unread; beyond, the oldest are dropped and counted
  /// A notification came or a transfer ended; called by the agent's threads, without its lock.
  std::function<void()> news;
};

/// A list of ranges made ready once (RangeList), so that transfers only name indices.
using ListId = uint64_t;
using TransferId = uint64_t;
/// The list's owner is this agent.
inline constexpr std::string_view kSelf;

/// A named endpoint that moves bytes between registered memory, files and objects of this process
/// and of other agents: one-sided reads and writes, with a notification once all bytes are there.
///
///   Agent a("prefill-0", {}, clock, metrics);
///   a.create_backend("tcp", {});
///   a.register_mem(MemType::kDram, arena);
///   a.load_remote_md(metadata_of_decode_0);                    // → "decode-0"
///   ListId mine = *a.prep_list(kSelf, MemType::kDram, runs);
///   ListId theirs = *a.prep_list("decode-0", MemType::kDram, runs);
///   TransferId t = *a.make_xfer(Op::kWrite, mine, {3, 4}, theirs, {100, 101}, "req-42:done");
///   a.post(t);  while (a.status(t) == Outcome::kInProgress) { … }  a.release(t);
///
/// A1  Nothing outside a registration is ever read or written: the initiator checks both sides, the
///     target its own again.
/// A2  Exactly one outcome per post; by the transfer's deadline at the latest.
/// A3  A notification comes after every byte of its transfer is visible at the target.
/// A4  An agent has a new epoch in each life; keys of an earlier one are refused.
/// Thread-safety: all methods, any thread; post() never blocks. deregister_mem() waits until no
/// peer writes there any more. Not movable.
class Agent final : private Host {
 public:
  Agent(std::string name, const AgentOptions& options, Clock& clock, Metrics& metrics);
  /// Cancels and waits for what runs.
  ~Agent() override;
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  const std::string& name() const override { return name_; }
  /// "shm", "cma", "tcp", "posix", "obj", and those of plugins.h: "ucx", "cuda", ….
  static std::vector<std::string> backend_types();
  Outcome create_backend(std::string_view type, const Params& params);

  /// Memory that agents of this host can map: a memfd. Registered, and given back with the agent.
  std::span<std::byte> allocate(size_t bytes);
  Outcome register_mem(MemType type, std::span<const Desc> ranges);
  /// A path ("rw:/tmp/x", "ro:…") or an object key; gives Desc::dev.
  Outcome register_named(MemType type, std::string_view meta, uint64_t& dev);
  /// Exactly what was registered.
  Outcome deregister_mem(MemType type, std::span<const Desc> ranges);
  /// Bytes of a registered file or object; nothing: not there.
  std::optional<uint64_t> query_mem(MemType type, uint64_t dev);

  std::string local_md() const;
  /// Only these registrations, which must be exact; none: only how to reach this agent. With
  /// `connection` false, what reaches it is left out. To be loaded behind a local_md() or another
  /// part. kNotFound: one of them is not registered.
  Outcome local_partial_md(MemType type, std::span<const Desc> ranges, bool connection,
                           std::string& blob) const;
  /// The peer's name. Replaces what was known of it; a part adds to that, unless it is from another
  /// life of the peer.
  Outcome load_remote_md(std::string_view blob, std::string& peer);
  Outcome invalidate_remote_md(std::string_view peer);
  /// Whether the peer is known in its present life.
  bool knows(std::string_view peer) const;

  /// kNotFound: some range is not registered (by that peer).
  Outcome prep_list(std::string_view owner, MemType type, std::span<const Desc> ranges,
                    ListId& list);
  Outcome prep_strided(std::string_view owner, MemType type, std::span<const StridedDesc> runs,
                       ListId& list);
  void release_list(ListId list);
  /// Its ranges; 0 for an unknown one.
  size_t list_size(ListId list) const;

  struct Wanted {
    Op op = Op::kRead;
    ListId local = 0;
    std::span<const uint32_t> local_indices;
    ListId remote = 0;
    std::span<const uint32_t> remote_indices;
    std::string notification;
    bool all = false;     ///< no indices: all of both lists, in their order
    Duration deadline{};  ///< zero: the agent's
  };
  Outcome make_xfer(const Wanted& wanted, TransferId& transfer);
  Outcome post(TransferId transfer);
  Outcome status(TransferId transfer) const;
  /// Waits for the end, at most so long. Copies that no thread has begun are done here.
  Outcome wait(TransferId transfer, Duration most);
  /// Cancels what runs; its memory stays in use until status() is not kInProgress.
  Outcome release(TransferId transfer);
  std::optional<Telemetry> telemetry(TransferId transfer) const;
  /// How long it will take, by what its backend has moved lately; nothing: it has moved nothing.
  std::optional<Duration> estimate(TransferId transfer) const;
  /// "shm", …: what will move it; empty for an unknown one.
  std::string backend_of(TransferId transfer) const;
  /// Why the last one failed, in words.
  std::string cause(TransferId transfer) const;
  /// The first of its ranges that was not moved, as far as it is known; nothing: it has not failed.
  std::optional<size_t> failed_range(TransferId transfer) const;

  /// What came since the last call, by sender.
  std::map<std::string, std::vector<std::string>> notifications();
  Outcome gen_notification(std::string_view peer, std::string_view message);

 private:
  struct Peer {
    Metadata metadata;                                   // its regions sorted
    std::map<std::string, bool, std::less<>> connected;  // by backend
  };
  using SharedList = std::shared_ptr<const RangeList>;  // shared with transfers

  uint64_t epoch() const override { return epoch_; }
  bool allows(const RemoteKey& key, const Desc& range) const override;
  void deliver(std::string peer, std::string message) override;
  void refused(Outcome why) override;

  std::unique_ptr<Backend> make_backend(std::string_view type, const Params& params,
                                        std::string& cause);
  Metadata describe(std::vector<Region> regions, bool connection) const STATOR_REQUIRES(mutex_);
  static void merge(Metadata& into, Metadata&& part);
  std::optional<std::span<const Region>> regions_of(std::string_view owner) const
      STATOR_REQUIRES(mutex_);
  SharedList find_list(ListId list) const STATOR_REQUIRES(mutex_);
  SharedTransfer find(TransferId transfer) const;
  Backend* choose(MemType local, MemType remote, std::string_view peer) STATOR_REQUIRES(mutex_);
  static Outcome pair_up(Transfer& transfer, uint64_t inline_bytes);

  const std::string name_;
  const AgentOptions options_;
  Clock& clock_;
  uint64_t epoch_ = 0;

  mutable Mutex mutex_;
  Registrations registered_ STATOR_GUARDED_BY(mutex_);
  std::map<std::string, Peer, std::less<>> peers_ STATOR_GUARDED_BY(mutex_);
  std::map<ListId, SharedList> lists_ STATOR_GUARDED_BY(mutex_);
  std::map<TransferId, SharedTransfer> transfers_ STATOR_GUARDED_BY(mutex_);
  uint64_t last_id_ STATOR_GUARDED_BY(mutex_) = 0;
  std::deque<std::pair<std::string, std::string>> notifications_ STATOR_GUARDED_BY(mutex_);

  Metrics& metrics_;
  Counter dropped_;
  Gauge registered_bytes_;
  std::vector<std::unique_ptr<Backend>> backends_ STATOR_GUARDED_BY(mutex_);
  Movers movers_;  // last: its threads use the rest
};

}  // namespace stator::transfer
