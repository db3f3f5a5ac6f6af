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
#include "stator/storage/sigv4.h"

namespace stator::storage {

struct S3Options {
  std::string bucket;
  std::string prefix;
  /// "http://127.0.0.1:9000": path-style requests go there. Empty:
  /// https://BUCKET.s3.REGION.amazonaws.com
  std::string endpoint;
  AwsCredentials credentials;
  Duration request_timeout = std::chrono::seconds(5);
  uint32_t tries = 4;  ///< of a request that fails for a passing reason
  /// Upper bound of the first pause between them, which is doubled each time; the pause is drawn
  /// below the bound.
  Duration first_pause = std::chrono::milliseconds(100);
};
/// "s3://BUCKET/PREFIX". kInvalidArgument for anything else.
Result<S3Options> parse_s3_url(std::string_view url);

/// Objects of one S3 bucket, by SigV4 over HTTP.
///
/// 404 is a miss; 429, 5xx, timeouts and broken connections are tried again with growing pauses;
/// 400 and 403 are kPermissionDenied. A body that is shorter or longer than asked for is kCorrupt.
/// Connections are kept, as many as threads ask at once. Thread-safe; methods block.
class S3Client {
 public:
  S3Client(S3Options options, Clock& clock, Metrics& metrics);
  ~S3Client();
  S3Client(const S3Client&) = delete;
  S3Client& operator=(const S3Client&) = delete;

  const S3Options& options() const { return options_; }
  /// Whether the bucket is there and the credentials are good for it.
  Status check();
  Result<bool> has(const std::string& key);
  /// Fills `out` with the whole object.
  Status get(const std::string& key, std::span<std::byte> out);
  enum class Put : uint8_t { kAny, kOnlyNew };
  /// kAlreadyExists: with kOnlyNew (If-None-Match), the key is there.
  Status put(const std::string& key, std::span<const std::byte> bytes, Put put);

 private:
  struct Call {
    std::string_view method;
    std::string path;  ///< behind the bucket, encoded
    std::string_view body{};
    bool only_new = false;
    net::OnChunk on_chunk{};
    /// Forgets what an earlier try gave to on_chunk.
    std::function<void()> restart{};
  };
  Result<int> ask(const Call& call);
  Result<int> try_once(const Call& call);
  bool pause(uint32_t tries_before);
  std::unique_ptr<net::HttpClient> take_client();
  void give_client(std::unique_ptr<net::HttpClient> client);

  const S3Options options_;
  Clock& clock_;
  std::string base_;                     // scheme and host
  std::string host_;                     // of the Host header
  std::string path_prefix_;              // "/BUCKET", or nothing
  std::atomic<bool> conditional_{true};  // the server knows If-None-Match on PUT

  Mutex mutex_;
  std::condition_variable_any stopped_;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<net::HttpClient>> clients_ STATOR_GUARDED_BY(mutex_);
  Random random_ STATOR_GUARDED_BY(mutex_);

  Metrics& metrics_;
};

}  // namespace stator::storage
