// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/object_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <optional>

#include "stator/core/log.h"

namespace stator::storage {
namespace {

constexpr Duration kPauseMax = std::chrono::seconds(5);
constexpr size_t kClientsKept = 64;
/// Clocks that differ by more are put right; S3 and Azure refuse 15 minutes.
constexpr Duration kSkewMax = std::chrono::minutes(5);
constexpr double kSeconds[] = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10};
/// An error's body is read this far, to tell one 403 from another.
constexpr size_t kErrorBytesMax = 4096;

bool passes(int status) {
  return status == 429 || status >= 500;
}

/// Without the query, which may be a secret.
std::string_view place_of(std::string_view url) {
  return url.substr(0, url.find('?'));
}

/// How far the server's clock is ahead of ours, by its Date header; nothing: it has none.
std::optional<Duration> ahead_of(const net::HttpHeaderList& headers, WallTime now) {
  const auto date = std::ranges::find(headers, "date", [](const auto& one) { return one.first; });
  std::tm parts{};
  if (date == headers.end() ||
      ::strptime(date->second.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts) == nullptr) {
    return std::nullopt;
  }
  return std::chrono::seconds(::timegm(&parts) - static_cast<time_t>(unix_seconds(now)));
}

std::string_view op_of(std::string_view method) {
  return method == "GET" ? "get" : method == "PUT" ? "put" : "head";
}

}  // namespace

ObjectClient::ObjectClient(std::unique_ptr<ObjectDialect> dialect, ObjectClientOptions options,
                           Clock& clock, Metrics& metrics)
    : dialect_(std::move(dialect)),
      options_(std::move(options)),
      clock_(clock),
      random_(Random::from_entropy()),
      metrics_(metrics) {}

ObjectClient::~ObjectClient() {
  const MutexLock lock(mutex_);
  stopping_ = true;
  stopped_.notify_all();
}

std::unique_ptr<net::HttpClient> ObjectClient::take_client() {
  const MutexLock lock(mutex_);
  if (clients_.empty()) {
    return std::make_unique<net::HttpClient>();
  }
  auto client = std::move(clients_.back());
  clients_.pop_back();
  return client;
}

void ObjectClient::give_client(std::unique_ptr<net::HttpClient> client) {
  const MutexLock lock(mutex_);
  if (clients_.size() < kClientsKept) {
    clients_.push_back(std::move(client));
  }
}

/// False: it is time to stop.
bool ObjectClient::pause(uint32_t tries_before) {
  MutexLock lock(mutex_);
  const Duration most = std::min(kPauseMax, options_.first_pause * (1U << tries_before));
  const auto drawn = Duration(static_cast<int64_t>(
      random_.next() % static_cast<uint64_t>(std::max<int64_t>(1, most.count()))));
  const TimePoint until = clock_.now() + drawn;
  while (!stopping_) {
    const Duration left = until - clock_.now();
    if (left <= Duration::zero()) {
      return true;
    }
    stopped_.wait_for(lock, left);
  }
  return false;
}

Result<int> ObjectClient::try_once(const Call& call) {
  ObjectCall asked = call.call;
  asked.only_new = asked.only_new && conditional_.load();
  const Duration skew(skew_.load());
  const WallTime now = clock_.wall_now() + std::chrono::duration_cast<WallTime::duration>(skew);
  const net::HttpClientRequest http = dialect_->request(asked, now);
  const std::string op(op_of(asked.method));
  std::string error_body;
  auto client = take_client();
  const TimePoint begin = clock_.now();
  // Only a success is the caller's; what an error says is looked at below, so its status must be
  // known: bodies of up to kErrorBytesMax wait until then.
  auto answer = client->request(
      http, {.timeout = options_.request_timeout, .stall_timeout = {}, .follow_redirects = false},
      [&](std::string_view bytes) {
        error_body.append(
            bytes.substr(0, kErrorBytesMax - std::min(kErrorBytesMax, error_body.size())));
        return !call.on_chunk || call.on_chunk(bytes);
      });
  metrics_
      .histogram("stator_kv_object_seconds", "time of requests to the object store", kSeconds,
                 {{"op", op}})
      .observe(std::chrono::duration<double>(clock_.now() - begin).count());
  metrics_
      .counter("stator_kv_object_requests_total", "requests to the object store",
               {{"op", op},
                {"code", answer ? std::to_string(answer->status)
                                : std::string(answer.error().info().name)}})
      .add();
  if (!answer) {
    return std::move(answer.error());
  }
  give_client(std::move(client));
  if (answer->status == 501 && asked.only_new) {
    conditional_ = false;
    return 503;  // and once more without it
  }
  if (answer->status == 400 || answer->status == 403) {
    // Signatures are good for some minutes only. An answer to HEAD does not say that it is this.
    const auto ahead = ahead_of(answer->headers, now);
    if (ahead && std::chrono::abs(*ahead) > kSkewMax) {
      skew_ = (skew + *ahead).count();
      log::warn("kv", "the object store's clock differs from this host's; its time is used",
                {{"place", dialect_->place()},
                 {"seconds", std::chrono::duration_cast<std::chrono::seconds>(*ahead).count()}});
      return 503;  // and once more by its clock
    }
    return Error(
        Code::kPermissionDenied,
        fmt::format("{} {} answers {}: {}", asked.method, place_of(http.url), answer->status,
                    error_body.empty() ? "check bucket, region and credentials" : error_body));
  }
  return answer->status;
}

Result<int> ObjectClient::ask(const Call& call) {
  for (uint32_t tried = 0;; ++tried) {
    if (call.restart) {
      call.restart();
    }
    Result<int> status = try_once(call);
    const Code code = status ? Code::kInternal : status.error().code();
    const bool again = status ? passes(*status)
                              : code == Code::kUnavailable || code == Code::kDeadline ||
                                    code == Code::kDisconnected;
    if (!again) {
      return status;
    }
    if (tried + 1 >= options_.tries || !pause(tried)) {
      return status ? Result<int>(
                          Error(Code::kUnavailable,
                                fmt::format("{} {} of {} answers {}, {} times", call.call.method,
                                            call.call.path, dialect_->place(), *status, tried + 1)))
                    : std::move(status);
    }
  }
}

Status ObjectClient::check() {
  STATOR_TRY(const int status, ask({.call = {.method = "HEAD", .path = ""}}));
  if (status == 404) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} does not exist: create it, or name another in kv.object",
                             dialect_->place()));
  }
  return {};
}

Result<bool> ObjectClient::has(const std::string& key) {
  STATOR_TRY(const int status, ask({.call = {.method = "HEAD", .path = "/" + encode_path(key)}}));
  return status == 200;
}

Status ObjectClient::get(const std::string& key, std::span<std::byte> out) {
  size_t filled = 0;
  bool too_long = false;
  STATOR_TRY(const int status, ask({.call = {.method = "GET", .path = "/" + encode_path(key)},
                                    .on_chunk =
                                        [&](std::string_view bytes) {
                                          const size_t fits =
                                              std::min(bytes.size(), out.size() - filled);
                                          std::memcpy(out.data() + filled, bytes.data(), fits);
                                          filled += fits;
                                          too_long = too_long || fits < bytes.size();
                                          return true;
                                        },
                                    .restart =
                                        [&] {
                                          filled = 0;
                                          too_long = false;
                                        }}));
  if (status == 404) {
    return Error(Code::kNotFound, "there is no such object");
  }
  if (status != 200) {
    return Error(Code::kUnavailable, fmt::format("the object store answers {}", status));
  }
  if (filled != out.size() || too_long) {
    return Error(Code::kCorrupt, fmt::format("an object has {}{} bytes instead of {}",
                                             too_long ? "more than " : "", filled, out.size()));
  }
  return {};
}

Status ObjectClient::put(const std::string& key, std::span<const std::byte> bytes, Put put) {
  STATOR_TRY(const int status,
             ask({.call = {.method = "PUT",
                           .path = "/" + encode_path(key),
                           .body = {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                           .only_new = put == Put::kOnlyNew}}));
  if (status == 412 || status == 409) {
    return Error(Code::kAlreadyExists, "the object is there");
  }
  if (status / 100 != 2) {
    return Error(status == 404 ? Code::kInvalidArgument : Code::kUnavailable,
                 fmt::format("the object store answers {} to a PUT{}", status,
                             status == 404 ? ": bucket or container is gone" : ""));
  }
  return {};
}

}  // namespace stator::storage
