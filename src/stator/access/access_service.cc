// SPDX-License-Identifier: Apache-2.0
#include "stator/access/access_service.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "stator/core/credentials.h"
#include "stator/core/log.h"
#include "stator/io/read_file.h"
#include "stator/net/http_client.h"
#include "stator/net/loopback.h"

namespace stator::access {
namespace {

using namespace std::chrono_literals;

// A token with a key id that nobody knows has the URL fetched at most this often.
constexpr Duration kRefetchMin = 2s;
constexpr size_t kJwksBytesMax = size_t{1} << 20;
constexpr size_t kKeyIdDigits = 12;

Error unknown_credentials() {
  return {Code::kUnauthenticated, "the API key is not known here"};
}

std::string_view as_text(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

bool starts_with_word(std::string_view text, std::string_view lower_word) {
  return text.size() > lower_word.size() && text[lower_word.size()] == ' ' &&
         std::ranges::equal(text.substr(0, lower_word.size()), lower_word,
                            [](char a, char b) { return (a | 0x20) == b; });
}

}  // namespace

std::string_view credential_of(const net::HttpRequest& request) {
  constexpr std::string_view kBearer = "bearer";
  if (const auto header = request.header("authorization")) {
    std::string_view value = *header;
    if (starts_with_word(value, kBearer)) {
      value.remove_prefix(kBearer.size());
      value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
      return value;
    }
  }
  return request.header("x-api-key").value_or("");
}

AccessService::AccessService(AccessConfig config, Clock& clock, Metrics& metrics)
    : config_(std::move(config)),
      clock_(clock),
      rules_{.issuer = config_.jwt_issuer,
             .audience = config_.jwt_audience,
             .tenant_claim = config_.jwt_tenant_claim,
             .role_claim = config_.jwt_role_claim},
      accepted_keys_(metrics.counter("stator_access_accepted_total", "requests with credentials",
                                     {{"by", "key"}})),
      accepted_tokens_(metrics.counter("stator_access_accepted_total", "requests with credentials",
                                       {{"by", "token"}})),
      refused_(metrics.counter("stator_access_unauthenticated_total",
                               "requests whose credentials do not hold")),
      cached_tokens_(metrics.counter("stator_access_tokens_cached_total",
                                     "tokens whose verdict was remembered")),
      reload_failures_(metrics.counter("stator_access_reload_failures_total",
                                       "files of keys, tenants or a JWKS that could not be used")),
      keys_known_(metrics.gauge("stator_access_keys", "API keys in force")),
      keys_(std::make_shared<const KeyTable>()),
      jwks_(std::make_shared<const JwkSet>()),
      limits_(std::make_shared<const TenantTable>()) {}

Result<std::unique_ptr<AccessService>> AccessService::start(AccessConfig config, Clock& clock,
                                                            Metrics& metrics) {
  std::unique_ptr<AccessService> made(new AccessService(std::move(config), clock, metrics));
  if (made->jwks_is_url() && !made->config_.jwks.starts_with("https://") &&
      !net::is_loopback_url(made->config_.jwks)) {
    return Error(Code::kInvalidArgument,
                 "access.jwt_jwks (flag --jwt-jwks): keys must come over https://, or from this "
                 "host: whoever can change them on the way signs tokens for everybody");
  }
  {
    const MutexLock lock(made->reload_mutex_);
    static_cast<void>(made->changed(made->config_.api_keys, made->keys_seen_));
    static_cast<void>(made->changed(made->config_.tenants, made->tenants_seen_));
    static_cast<void>(made->changed(made->config_.jwks, made->jwks_seen_));
    made->jwks_fetched_ = clock.now();
  }
  STATOR_CHECK(made->read_keys(), "access.api_keys (flag --api-keys)");
  made->choose_salt_key();
  STATOR_CHECK(made->read_tenants(), "access.tenants (flag --tenants)");
  STATOR_CHECK(made->read_jwks(), "access.jwt_jwks (flag --jwt-jwks)");
  if (made->config_.required() || !made->config_.tenants.empty()) {
    made->thread_ = net::Thread("access", [self = made.get()] { self->loop(); });
  }
  return made;
}

AccessService::~AccessService() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void AccessService::choose_salt_key() {
  salt_key_ = config_.cache_salt_key;
  if (!salt_key_.empty()) {
    return;
  }
  const MutexLock lock(mutex_);
  salt_key_ = keys_->secret_of_all();
  if (salt_key_.empty() && !config_.jwks.empty()) {
    log::warn(
        "access",
        "tenants' cache salts are derived with a key that everybody knows: whoever sees block "
        "hashes (KV events, request traces) can try out prompts; set access.cache_salt_key "
        "to a secret, the same at all frontends",
        {});
  }
}

// ---- who

Result<Caller> AccessService::authenticate(const net::HttpRequest& request) {
  const std::string_view credential = credential_of(request);
  if (credential.empty()) {
    return Caller{};
  }
  if (!config_.jwks.empty() && looks_like_jwt(credential)) {
    return by_token(credential);
  }
  std::shared_ptr<const KeyTable> keys;
  {
    const MutexLock lock(mutex_);
    keys = keys_;
  }
  const KeyTable::Found found = keys->find(credential);
  if (found.entry == nullptr) {
    refused_.add();
    return unknown_credentials();
  }
  accepted_keys_.add();
  return Caller{.role = found.entry->role,
                .tenant = found.entry->tenant,
                .key_id = to_hex(as_text(found.digest).substr(0, kKeyIdDigits / 2)),
                .budget = tenant(found.entry->tenant)};
}

Result<Caller> AccessService::by_token(std::string_view token) {
  auto claims = verdict_on(token, sha256(token));
  if (!claims) {
    refused_.add();
    return std::move(claims.error());
  }
  accepted_tokens_.add();
  auto budget = tenant(claims->tenant);
  return Caller{.role = claims->role,
                .tenant = std::move(claims->tenant),
                .key_id = std::move(claims->subject),
                .budget = std::move(budget)};
}

Result<JwtClaims> AccessService::verdict_on(std::string_view token, const Digest& digest) {
  const WallTime now = clock_.wall_now();
  std::shared_ptr<const JwkSet> jwks;
  {
    const MutexLock lock(mutex_);
    if (const auto known = verdicts_.find(as_text(digest)); known != verdicts_.end()) {
      if (known->second.expires > now) {
        cached_tokens_.add();
        return known->second;
      }
      verdicts_.erase(known);
    }
    jwks = jwks_;
  }
  auto claims = jwks->verify(token, rules_, now);
  if (!claims && claims.error().code() == Code::kNotFound) {
    const MutexLock lock(mutex_);
    if (!std::exchange(jwks_wanted_, true)) {
      wake_.notify_all();
    }
    return std::move(claims.error()).with_code(Code::kUnauthenticated);
  }
  if (claims) {
    const MutexLock lock(mutex_);
    if (jwks == jwks_) {
      if (verdicts_.size() >= config_.jwt_cache_max) {
        verdicts_.erase(verdicts_.begin());
      }
      verdicts_.insert_or_assign(std::string(as_text(digest)), *claims);
    }
  }
  return claims;
}

std::shared_ptr<Tenant> AccessService::tenant(std::string_view name) {
  const MutexLock lock(mutex_);
  if (const auto known = tenants_.find(name); known != tenants_.end()) {
    return known->second;
  }
  if (tenants_.size() >= config_.tenants_max && !limits_->lists(name)) {
    if (further_tenants_ == nullptr) {
      further_tenants_ = std::make_shared<Tenant>("*", limits_->find("*"));
    }
    return further_tenants_;
  }
  auto made = std::make_shared<Tenant>(std::string(name), limits_->find(name));
  tenants_.emplace(name, made);
  return made;
}

std::string AccessService::cache_salt(std::string_view tenant, std::string_view salt) const {
  // Length first, so that no tenant's text goes on in another's salt.
  const Digest digest = sha256(
      fmt::format("stator cache salt\n{}\n{}:{}\n{}", salt_key_, tenant.size(), tenant, salt));
  return "t-" + to_hex(as_text(digest).substr(0, 16));
}

std::vector<AccessService::TenantState> AccessService::list_tenants() const {
  const TimePoint now = clock_.now();
  std::vector<TenantState> out;
  const MutexLock lock(mutex_);
  for (const auto& [name, tenant] : tenants_) {
    out.push_back({name, tenant->state(now)});
  }
  std::ranges::sort(out, {}, &TenantState::name);
  return out;
}

// ---- files

bool AccessService::jwks_is_url() const {
  return config_.jwks.contains("://");
}

bool AccessService::changed(const std::string& path, Stamp& seen) const {
  if (path.empty() || path.contains("://")) {
    return false;
  }
  struct stat file{};
  Stamp now;
  if (::stat(path.c_str(), &file) == 0) {
    now = {.changed_ns = file.st_mtim.tv_sec * 1'000'000'000 + file.st_mtim.tv_nsec,
           .inode = file.st_ino,
           .size = file.st_size};
  }
  return std::exchange(seen, now) != now;
}

Status AccessService::read_keys() {
  if (config_.api_keys.empty()) {
    return {};
  }
  STATOR_TRY(const std::string text, io::read_file(config_.api_keys));
  STATOR_TRY(KeyTable table, KeyTable::parse(text), config_.api_keys);
  keys_known_.set(static_cast<double>(table.size()));
  if (table.size() == 0) {
    log::warn("access", "the file of API keys is empty: nobody gets in",
              {{"file", config_.api_keys}});
  }
  auto shared = std::make_shared<const KeyTable>(std::move(table));
  const MutexLock lock(mutex_);
  keys_ = std::move(shared);
  return {};
}

Status AccessService::read_tenants() {
  if (config_.tenants.empty()) {
    return {};
  }
  STATOR_TRY(const std::string text, io::read_file(config_.tenants));
  STATOR_TRY(TenantTable table, TenantTable::parse(text), config_.tenants);
  const MutexLock lock(mutex_);
  limits_ = std::make_shared<const TenantTable>(std::move(table));
  for (const auto& [name, tenant] : tenants_) {
    tenant->set_limits(limits_->find(name));
  }
  if (further_tenants_ != nullptr) {
    further_tenants_->set_limits(limits_->find("*"));
  }
  return {};
}

Result<JwkSet> AccessService::fetch_keys() const {
  if (!jwks_is_url()) {
    STATOR_TRY(const std::string text, io::read_file(config_.jwks, kJwksBytesMax));
    return JwkSet::parse(text);
  }
  STATOR_TRY(const net::HttpClientResponse answer,
             net::http_request({.method = "GET", .url = config_.jwks, .headers = {}, .body = {}},
                               {.connect_timeout = 5s,
                                .timeout = 10s,
                                .body_bytes_max = kJwksBytesMax,
                                .follow_redirects = false}));
  if (answer.status != 200) {
    return Error(Code::kUnavailable,
                 fmt::format("{} answers {}", hide_credentials(config_.jwks), answer.status));
  }
  return JwkSet::parse(answer.body);
}

Status AccessService::read_jwks() {
  if (config_.jwks.empty()) {
    return {};
  }
  STATOR_TRY(JwkSet set, fetch_keys());
  auto shared = std::make_shared<const JwkSet>(std::move(set));
  const MutexLock lock(mutex_);
  jwks_ = std::move(shared);
  verdicts_.clear();
  return {};
}

void AccessService::note_failure(std::string_view setting, const Status& status) {
  if (!status) {
    reload_failures_.add();
    log::error("access", "a changed file cannot be used, what was read before stays in force",
               {{"setting", setting}, {"why", status.error().message()}});
  } else {
    log::info("access", "reloaded", {{"setting", setting}});
  }
}

void AccessService::reload() {
  const MutexLock reloading(reload_mutex_);
  if (changed(config_.api_keys, keys_seen_)) {
    note_failure("access.api_keys", read_keys());
  }
  if (changed(config_.tenants, tenants_seen_)) {
    note_failure("access.tenants", read_tenants());
  }
  bool wanted = false;
  {
    const MutexLock lock(mutex_);
    wanted = jwks_wanted_;
  }
  const Duration age = clock_.now() - jwks_fetched_;
  const bool due =
      jwks_is_url() && (age >= config_.jwks_interval || (wanted && age >= kRefetchMin));
  if (due || changed(config_.jwks, jwks_seen_)) {
    jwks_fetched_ = clock_.now();
    note_failure("access.jwt_jwks", read_jwks());
    const MutexLock lock(mutex_);
    jwks_wanted_ = false;
  }
}

void AccessService::loop() {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (!stopping_) {
        wake_.wait_for(lock, config_.reload_interval);
      }
      if (stopping_) {
        return;
      }
    }
    reload();
  }
}

}  // namespace stator::access
