// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/discovery/etcd_discovery.h"
#include "stator/net/grpc_channel.h"
#include "stator/net/shard.h"
#include "stator/proto/etcd/v3/etcd.pb.h"

namespace stator::discovery::detail {

/// Calls to an etcd cluster: one member at a time, the next one when it fails. Every call but a
/// watch has a deadline; errors are kUnavailable for what another try may mend, kUnauthenticated,
/// kPermissionDenied, else as the store said. Thread-safe; calls block their thread, while a loop
/// of the client's own does the work.
class EtcdClient {
 public:
  static Result<std::unique_ptr<EtcdClient>> create(const EtcdOptions& options, Metrics& metrics);
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;
  /// No call is under way.
  ~EtcdClient();

  /// All keys with the prefix, or only the position of the store.
  enum class Wanted : uint8_t { kAll, kPosition };
  Result<etcdserverpb::RangeResponse> range(std::string_view prefix, Wanted wanted);
  Result<std::string> get(std::string_view key);  ///< empty: not there
  Status put(std::string_view key, std::string_view value, int64_t lease);
  /// Deletes the key if it still belongs to the lease.
  Status remove_own(std::string_view key, int64_t lease);

  struct Lease {
    int64_t id = 0;
    Duration ttl{};  ///< zero: there is no such lease
  };
  Result<Lease> grant(Duration ttl);
  Result<Lease> keep_alive(int64_t lease);
  Status revoke(int64_t lease);

  enum class Watching : uint8_t { kGoOn, kEnd };
  /// What a watch tells, on the client's loop: must not call back.
  using Take = std::function<Watching(const etcdserverpb::WatchResponse& response)>;
  /// Gives `take` all changes of keys with the prefix from `revision` on, until it ends the watch
  /// (no error) or the watch is over (kUnavailable).
  Status watch(std::string_view prefix, int64_t revision, const Take& take);

  /// Calls under way, watches too, fail now and later ones at once; revoke() may still be tried.
  void interrupt();

 private:
  struct Waiting;
  class WatchCall;
  enum class Urgency : uint8_t { kNormal, kLast };
  struct Request {
    const char* path = nullptr;
    std::string bytes;
    Duration deadline{};
    Urgency urgency = Urgency::kNormal;
  };

  EtcdClient(const EtcdOptions& options, Metrics& metrics);
  net::Shard& loop() { return shards_.shard(0); }
  const std::string& endpoint() const;
  net::GrpcMetadata metadata() STATOR_EXCLUDES(mutex_);
  Status log_in() STATOR_EXCLUDES(mutex_);
  Status check(const net::GrpcOutcome& outcome) STATOR_EXCLUDES(mutex_);
  net::GrpcOutcome ask(Request request, std::string& answer, const Take* take);
  template <typename Message, typename Response>
  Status run(const char* path, const Message& message, Response& response,
             Urgency urgency = Urgency::kNormal);

  // On the loop.
  net::GrpcChannel& channel();
  void begin(const std::shared_ptr<Waiting>& call);
  void end(uint64_t number);

  const EtcdOptions options_;
  std::shared_ptr<const net::ClientTls> tls_;  // shared with channels; null: plain
  std::atomic<size_t> member_{0};
  std::atomic<bool> interrupted_{false};
  Mutex mutex_;
  std::string token_ STATOR_GUARDED_BY(mutex_);  // of the user, empty: not logged in

  SystemClock loop_clock_;  // only paces the loop
  net::ShardSet shards_;
  // The loop's.
  std::vector<std::unique_ptr<net::GrpcChannel>> channels_;  // one per member, made when used
  // Calls under way: one per thread that uses the client.
  std::map<uint64_t, std::shared_ptr<Waiting>> calls_;  // shared with the thread that waits
  uint64_t last_call_ = 0;
};

}  // namespace stator::discovery::detail
