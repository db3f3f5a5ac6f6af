// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/access/access_config.h"
#include "stator/access/caller.h"
#include "stator/access/jwt.h"
#include "stator/access/key_table.h"
#include "stator/access/tenants.h"
#include "stator/core/clock.h"
#include "stator/core/keyed_map.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/net/http_request.h"
#include "stator/net/thread.h"

namespace stator::access {

/// Who sends a request, and what their tenant has left: keys, tokens and tenants of a process, read
/// again when their files change. Thread-safe.
///
///   STATOR_TRY(auto access, AccessService::start(config, clock, metrics));
///   STATOR_TRY(Caller caller, access->authenticate(request));
///
/// A1  What cannot be read leaves what was read before in force, with a log line and a count.
/// A2  A key or token is in no message, log line or metric.
/// A3  A verdict on a token is remembered no longer than the token holds, and not beyond a change
///     of the keys that sign.
class AccessService {
 public:
  /// Errors of the files and of the first fetch of a JWKS URL, which name the setting.
  static Result<std::unique_ptr<AccessService>> start(AccessConfig config, Clock& clock,
                                                      Metrics& metrics);
  ~AccessService();
  AccessService(const AccessService&) = delete;
  AccessService& operator=(const AccessService&) = delete;

  /// Whether callers need credentials; without, everybody may what `kOperator` may.
  bool required() const { return config_.required(); }

  /// By `Authorization: Bearer`, else by `x-api-key`: a key of the file, or a token. A caller
  /// without either is kAnyone. kUnauthenticated: there are credentials, and they do not hold.
  Result<Caller> authenticate(const net::HttpRequest& request);
  /// The tenant's budget; made at its first request.
  std::shared_ptr<Tenant> tenant(std::string_view name);
  /// What tells a tenant's KV blocks from those of others; `salt` is the request's own, within it.
  /// Derived with access.cache_salt_key, else with what the keys' file held at the start, so that
  /// who sees block hashes cannot try out prompts.
  std::string cache_salt(std::string_view tenant, std::string_view salt) const;

  /// Looks at the files now; for tests. Also done by the service's thread.
  void reload();
  struct TenantState {
    std::string name;
    Tenant::State state;
  };
  std::vector<TenantState> list_tenants() const;

 private:
  /// What was read last; replaced as a whole.
  struct Stamp {
    int64_t changed_ns = 0;
    uint64_t inode = 0;
    int64_t size = 0;
    bool operator==(const Stamp&) const = default;
  };
  AccessService(AccessConfig config, Clock& clock, Metrics& metrics);

  Result<Caller> by_token(std::string_view token);
  Result<JwtClaims> verdict_on(std::string_view token, const Digest& digest);
  Result<JwkSet> fetch_keys() const;
  Status read_keys();
  void choose_salt_key();
  Status read_tenants();
  Status read_jwks();
  bool changed(const std::string& path, Stamp& seen) const;
  bool jwks_is_url() const;
  void note_failure(std::string_view setting, const Status& status);
  void loop();

  const AccessConfig config_;
  std::string salt_key_;  // set once, at the start
  Clock& clock_;
  const JwtRules rules_;
  Counter accepted_keys_;
  Counter accepted_tokens_;
  Counter refused_;
  Counter cached_tokens_;
  Counter reload_failures_;
  Gauge keys_known_;

  mutable Mutex mutex_;
  std::shared_ptr<const KeyTable> keys_ STATOR_GUARDED_BY(mutex_);  // shared with who reads it
  std::shared_ptr<const JwkSet> jwks_ STATOR_GUARDED_BY(mutex_);    // the same
  std::shared_ptr<const TenantTable> limits_ STATOR_GUARDED_BY(mutex_);
  KeyedMap<std::shared_ptr<Tenant>> tenants_ STATOR_GUARDED_BY(mutex_);
  std::shared_ptr<Tenant> further_tenants_ STATOR_GUARDED_BY(mutex_);
  KeyedMap<JwtClaims> verdicts_ STATOR_GUARDED_BY(mutex_);  // by digest, at most jwt_cache_max
  bool jwks_wanted_ STATOR_GUARDED_BY(mutex_) = false;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  std::condition_variable_any wake_;

  Mutex reload_mutex_;
  Stamp keys_seen_ STATOR_GUARDED_BY(reload_mutex_);
  Stamp tenants_seen_ STATOR_GUARDED_BY(reload_mutex_);
  Stamp jwks_seen_ STATOR_GUARDED_BY(reload_mutex_);
  TimePoint jwks_fetched_ STATOR_GUARDED_BY(reload_mutex_);
  net::Thread thread_;
};

/// The key or token that a request brings; empty: none. `Authorization: Bearer` goes before
/// `x-api-key`.
std::string_view credential_of(const net::HttpRequest& request);

}  // namespace stator::access
