// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/random.h"
#include "stator/net/http_client.h"
#include "stator/storage/object_dialect.h"

namespace stator::storage {

struct ObjectClientOptions {
  std::string prefix;  ///< of keys
  Duration request_timeout = std::chrono::seconds(5);
  uint32_t tries = 4;  ///< of a request that fails for a passing reason
  /// Upper bound of the first pause between them, which is doubled each time; the pause is drawn
  /// below the bound.
  Duration first_pause = std::chrono::milliseconds(100);
};

/// Objects of one bucket or container, over HTTP.
///
/// 404 is a miss; 429, 5xx, timeouts and broken connections are tried again with growing pauses;
/// 400 and 403 are kPermissionDenied, unless the server's clock differs: its time is used then. A
/// body that is shorter or longer than asked for is kCorrupt. Connections are kept, as many as
/// threads ask at once. Thread-safe; methods block.
class ObjectClient {
 public:
  ObjectClient(std::unique_ptr<ObjectDialect> dialect, ObjectClientOptions options, Clock& clock,
               Metrics& metrics);
  ~ObjectClient();
  ObjectClient(const ObjectClient&) = delete;
  ObjectClient& operator=(const ObjectClient&) = delete;

  const ObjectClientOptions& options() const { return options_; }
  /// Whether bucket or container is there and the credentials are good for it.
  Status check();
  Result<bool> has(const std::string& key);
  /// Fills `out` with the whole object.
  Status get(const std::string& key, std::span<std::byte> out);
  enum class Put : uint8_t { kAny, kOnlyNew };
  /// kAlreadyExists: with kOnlyNew (If-None-Match), the key is there.
  Status put(const std::string& key, std::span<const std::byte> bytes, Put put);

 private:
  struct Call {
    ObjectCall call;
    net::OnChunk on_chunk{};
    /// Forgets what an earlier try gave to on_chunk.
    std::function<void()> restart{};
  };
  Result<int> ask(const Call& call);
  Result<int> try_once(const Call& call);
  bool pause(uint32_t tries_before);
  std::unique_ptr<net::HttpClient> take_client();
  void give_client(std::unique_ptr<net::HttpClient> client);

  const std::unique_ptr<ObjectDialect> dialect_;
  const ObjectClientOptions options_;
  Clock& clock_;
  std::atomic<bool> conditional_{true};  // the server knows If-None-Match on PUT
  std::atomic<int64_t> skew_{0};         // how far its clock is ahead of ours, in Duration's ticks

  Mutex mutex_;
  std::condition_variable_any stopped_;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<net::HttpClient>> clients_ STATOR_GUARDED_BY(mutex_);
  Random random_ STATOR_GUARDED_BY(mutex_);

  Metrics& metrics_;
};

}  // namespace stator::storage
