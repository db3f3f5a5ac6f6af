// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/json/value.h"
#include "stator/kube/access.h"
#include "stator/kube/exec_credential.h"
#include "stator/kube/object.h"
#include "stator/kube/watch_stream.h"
#include "stator/net/http_session.h"

namespace stator::kube {

struct ClientConfig {
  Access access;
  std::string agent = "stator";
  double writes_per_second = 300;  ///< on average …
  double writes_burst = 600;       ///< … and at once
  Duration timeout = std::chrono::seconds(30);
  uint32_t retries_max = 4;  ///< of 429, 503 and broken connections, honouring Retry-After
  size_t list_page = 500;
};

/// What an API server said that is no success: the status and the words of its Status object.
/// Codes: 404 kNotFound, 409 kAlreadyExists (a conflict: read again), 410 kDraining (start over),
/// 400 and 422 kInvalidArgument, 401 kUnauthenticated, 403 kPermissionDenied, 429 kRateLimited,
/// other kUnavailable.
Error to_error(int status, std::string_view body, std::string_view what);

/// Which objects: of a namespace ("" for all) and with these labels ("a=b,c=d").
struct Selection {
  std::string space = {};
  std::string labels = {};
  std::string fields = {};
};

struct ApplyOptions {
  std::string manager = "stator-operator";
  bool force = true;
  std::string subresource = {};  ///< "status"
  bool dry_run = false;
};

/// Talks to an API server; blocking, from any thread that is no event loop. Each call takes one of
/// the open connections, or makes one. Reads retry, writes do so where nothing was done.
class Client {
 public:
  Client(ClientConfig config, const Clock& clock, Metrics& metrics);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  const std::string& space() const { return config_.access.space; }
  /// Every wait ends at once, and later calls fail with kCancelled.
  void stop();

  /// GET of a path such as "/version".
  Result<json::Value> get_path(std::string_view path);
  Result<json::Value> get(const Resource& resource, const ObjectName& name);
  /// Every object, one at a time, page by page; returns the list's resourceVersion.
  using OnObject = std::function<Status(json::Value object)>;
  Result<std::string> list(const Resource& resource, const Selection& selection,
                           const OnObject& on_object);
  /// From a version on, until the server ends the stream, `on_event` fails or stop(). The value is
  /// the last version seen (bookmarks count). kDraining: list again.
  using OnEvent = std::function<Status(WatchEvent event)>;
  Result<std::string> watch(const Resource& resource, const Selection& selection,
                            std::string version, const OnEvent& on_event);

  /// Server-side apply.
  Result<json::Value> apply(const Resource& resource, const json::Value& object,
                            const ApplyOptions& options = {});
  Result<json::Value> create(const Resource& resource, const json::Value& object);
  /// PUT: `object` has its resourceVersion; kAlreadyExists when it is not the newest.
  Result<json::Value> replace(const Resource& resource, const json::Value& object,
                              std::string_view subresource = "");
  Result<json::Value> merge_patch(const Resource& resource, const ObjectName& name,
                                  const json::Value& patch, std::string_view subresource = "");
  Result<json::Value> json_patch(const Resource& resource, const ObjectName& name,
                                 const json::Value& patch, std::string_view subresource = "");
  /// Background deletion; kNotFound counts as done. `uid`: only this very object.
  Status remove(const Resource& resource, const ObjectName& name, std::string_view uid = "");

  uint64_t writes() const { return writes_done_.load(); }

 private:
  struct Call {
    std::string method;
    std::string path;
    std::string content_type = {};
    std::string body = {};
    bool is_write = false;
  };
  Result<json::Value> send(const Call& call);
  Result<net::HttpClientResponse> send_raw(const Call& call, Duration timeout,
                                           const net::OnChunk& on_chunk);
  Result<std::string> list_page(const Resource& resource, const Selection& selection,
                                std::string& next, const OnObject& on_object);
  std::unique_ptr<net::HttpSession> take_session();
  void give_session(std::unique_ptr<net::HttpSession> session);
  Result<net::HttpClientRequest> make_request(const Call& call);
  Result<std::string> token(bool again);
  Status wait_for_turn();
  bool wait(Duration time);

  ClientConfig config_;
  const Clock& clock_;
  Counter requests_;
  Counter failures_;
  Counter retries_;
  std::atomic<uint64_t> writes_done_{0};
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;
  std::condition_variable stopped_;
  std::vector<std::unique_ptr<net::HttpSession>> idle_;
  std::string sessions_made_of_;  ///< credentials of idle_, to see when files change
  std::string token_;
  TimePoint token_read_{};
  ExecCredential exec_credential_;  ///< what the kubeconfig's program said last
  double allowance_;
  TimePoint allowance_at_{};
};

/// The path of a resource, or of one of its objects.
std::string path_of(const Resource& resource, std::string_view space, std::string_view name = "",
                    std::string_view subresource = "");

}  // namespace stator::kube
