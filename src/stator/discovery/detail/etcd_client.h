// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/discovery/etcd_discovery.h"
#include "stator/proto/etcd/v3/etcd.grpc.pb.h"

namespace stator::discovery::detail {

class EtcdClient;

/// A watch of keys, of one thread but for EtcdClient::interrupt(). The client outlives it.
class EtcdWatch {
 public:
  ~EtcdWatch();
  /// The next response; false when the stream is over (status() says why).
  bool read(etcdserverpb::WatchResponse& response) { return stream_->Read(&response); }
  void cancel() { call_.TryCancel(); }
  grpc::Status finish() { return stream_->Finish(); }

 private:
  friend class EtcdClient;
  explicit EtcdWatch(EtcdClient& client) : client_(client) {}
  EtcdClient& client_;
  grpc::ClientContext call_;
  std::unique_ptr<grpc::ClientReaderWriter<etcdserverpb::WatchRequest, etcdserverpb::WatchResponse>>
      stream_;
};

/// Calls to an etcd cluster: one member at a time, the next one when it fails. Every call has a
/// deadline; errors are kUnavailable for what another try may mend, kUnauthenticated,
/// kPermissionDenied, else as the store said. Thread-safe; calls block.
class EtcdClient {
 public:
  static Result<std::unique_ptr<EtcdClient>> create(const EtcdOptions& options);

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

  /// All changes of keys with the prefix from `revision` on.
  Result<std::unique_ptr<EtcdWatch>> watch(std::string_view prefix, int64_t revision);

  /// Calls under way, watches too, fail now and later ones at once; revoke() may still be tried.
  void interrupt() STATOR_EXCLUDES(mutex_);
  /// The member failed elsewhere (a watch ended): ask another one next.
  void next_member() { ++member_; }

 private:
  explicit EtcdClient(const EtcdOptions& options) : options_(options) {}
  std::shared_ptr<grpc::Channel> channel() const;
  Status log_in() STATOR_EXCLUDES(mutex_);
  void prepare(grpc::ClientContext& call) STATOR_EXCLUDES(mutex_);
  Status check(const grpc::Status& status) STATOR_EXCLUDES(mutex_);
  template <typename Call>
  Status run(Call call);
  friend class EtcdWatch;
  Status enter(grpc::ClientContext& call) STATOR_EXCLUDES(mutex_);
  void leave(grpc::ClientContext& call) STATOR_EXCLUDES(mutex_);

  const EtcdOptions options_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;  // one per member
  std::atomic<size_t> member_{0};
  Mutex mutex_;
  std::string token_ STATOR_GUARDED_BY(mutex_);  // of the user, empty: not logged in
  // Calls under way: a few per thread that uses the client, and the watches.
  std::set<grpc::ClientContext*> calls_ STATOR_GUARDED_BY(mutex_);
  bool interrupted_ STATOR_GUARDED_BY(mutex_) = false;
};

}  // namespace stator::discovery::detail
