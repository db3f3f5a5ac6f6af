// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "stator/io/read_file.h"

namespace stator::kube {
namespace {

using json::Value;
using namespace std::chrono_literals;

constexpr Duration kTokenAge = 60s;
constexpr Duration kBackOffFirst = 100ms;
constexpr Duration kBackOffMax = 5s;
constexpr size_t kIdleMax = 16;
constexpr Duration kWatchTime = 300s;

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      out.push_back(c);
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string query_of(const Selection& selection) {
  std::string query;
  if (!selection.labels.empty()) {
    query += "&labelSelector=" + escaped(selection.labels);
  }
  if (!selection.fields.empty()) {
    query += "&fieldSelector=" + escaped(selection.fields);
  }
  return query;
}

Code code_of(int status) {
  switch (status) {
    case 400:
    case 422:
      return Code::kInvalidArgument;
    case 401:
      return Code::kUnauthenticated;
    case 403:
      return Code::kPermissionDenied;
    case 404:
      return Code::kNotFound;
    case 409:
      return Code::kAlreadyExists;
    case 410:
      return Code::kDraining;
    case 413:
      return Code::kTooLarge;
    case 429:
      return Code::kRateLimited;
    default:
      return Code::kUnavailable;
  }
}

Duration retry_after(const net::HttpClientResponse& response, uint32_t attempt) {
  if (const auto header = response.header("retry-after")) {
    int seconds = 0;
    const auto [end, failed] =
        std::from_chars(header->data(), header->data() + header->size(), seconds);
    if (failed == std::errc() && seconds >= 0) {
      return std::min<Duration>(std::chrono::seconds(seconds), 30s);
    }
  }
  return std::min<Duration>(kBackOffFirst * (1 << std::min(attempt, 6U)), kBackOffMax);
}

}  // namespace

std::string path_of(const Resource& resource, std::string_view space, std::string_view name,
                    std::string_view subresource) {
  std::string path = resource.group.empty()
                         ? fmt::format("/api/{}", resource.version)
                         : fmt::format("/apis/{}/{}", resource.group, resource.version);
  if (resource.is_namespaced && !space.empty()) {
    path += fmt::format("/namespaces/{}", escaped(space));
  }
  path += "/" + resource.plural;
  if (!name.empty()) {
    path += "/" + escaped(name);
  }
  if (!subresource.empty()) {
    path += fmt::format("/{}", subresource);
  }
  return path;
}

Error to_error(int status, std::string_view body, std::string_view what) {
  std::string message;
  if (const auto parsed = json::parse(body)) {
    message = parsed->text_at({"message"});
  }
  if (message.empty()) {
    message = std::string(body.substr(0, 200));
  }
  return {code_of(status), fmt::format("{}: HTTP {}: {}", what, status, message)};
}

Client::Client(ClientConfig config, const Clock& clock, Metrics& metrics)
    : config_(std::move(config)),
      clock_(clock),
      requests_(metrics.counter("stator_kube_requests_total", "Requests to the API server")),
      failures_(metrics.counter("stator_kube_request_failures_total",
                                "Requests to the API server that ended without a success")),
      retries_(metrics.counter("stator_kube_retries_total", "Requests that were sent again")),
      allowance_(config_.writes_burst),
      allowance_at_(clock.now()) {}

Client::~Client() = default;

void Client::stop() {
  stopping_.store(true);
  const std::lock_guard lock(mutex_);
  stopped_.notify_all();
}

bool Client::wait(Duration time) {
  std::unique_lock lock(mutex_);
  stopped_.wait_for(lock, time, [&] { return stopping_.load(); });
  return !stopping_.load();
}

/// A token bucket: writers of all threads together.
Status Client::wait_for_turn() {
  Duration pause{};
  {
    const std::lock_guard lock(mutex_);
    const TimePoint now = clock_.now();
    const double seconds = std::chrono::duration<double>(now - allowance_at_).count();
    allowance_ = std::min(config_.writes_burst, allowance_ + seconds * config_.writes_per_second);
    allowance_at_ = now;
    allowance_ -= 1;
    if (allowance_ < 0) {
      pause = std::chrono::duration_cast<Duration>(
          std::chrono::duration<double>(-allowance_ / config_.writes_per_second));
    }
  }
  if (pause > Duration::zero() && !wait(pause)) {
    return Error(Code::kCancelled, "the client of the API server was stopped");
  }
  return {};
}

Result<std::string> Client::token(bool again) {
  if (!config_.access.exec.command.empty()) {
    const std::lock_guard lock(mutex_);
    if (again || !exec_credential_.is_good(clock_.wall_now())) {
      STATOR_TRY(exec_credential_, run_exec_plugin(config_.access.exec));
    }
    return exec_credential_.token.empty() ? config_.access.token : exec_credential_.token;
  }
  if (config_.access.token_path.empty()) {
    return config_.access.token;
  }
  const std::lock_guard lock(mutex_);
  const TimePoint now = clock_.now();
  if (token_.empty() || again || now - token_read_ > kTokenAge) {
    STATOR_TRY(token_, io::read_file(config_.access.token_path),
               "reading the service account's token");
    while (!token_.empty() && (token_.back() == '\n' || token_.back() == ' ')) {
      token_.pop_back();
    }
    token_read_ = now;
  }
  return token_;
}

std::unique_ptr<net::HttpSession> Client::take_session() {
  const Access& access = config_.access;
  net::SessionCredentials credentials{
      .ca = access.ca, .certificate = access.certificate, .key = access.key};
  const auto load = [](const std::string& path, std::string& into) {
    if (!path.empty()) {
      into =
          io::read_file(path).value_or(into);  // a file that is just being replaced: the next time
    }
  };
  const std::lock_guard lock(mutex_);
  const bool has_files = !access.ca_path.empty() || !access.certificate_path.empty() ||
                         !exec_credential_.certificate.empty();
  if (!idle_.empty() && !has_files) {
    auto session = std::move(idle_.back());
    idle_.pop_back();
    return session;
  }
  load(access.ca_path, credentials.ca);
  load(access.certificate_path, credentials.certificate);
  load(access.key_path, credentials.key);
  if (!exec_credential_.certificate.empty()) {
    credentials.certificate = exec_credential_.certificate;
    credentials.key = exec_credential_.key;
  }
  const std::string made_of =
      sha256_hex(credentials.ca + "\n" + credentials.certificate + "\n" + credentials.key);
  if (made_of != sessions_made_of_) {
    idle_.clear();  // connections with the old certificates
    sessions_made_of_ = made_of;
  }
  if (!idle_.empty()) {
    auto session = std::move(idle_.back());
    idle_.pop_back();
    return session;
  }
  return std::make_unique<net::HttpSession>(std::move(credentials), &stopping_);
}

void Client::give_session(std::unique_ptr<net::HttpSession> session) {
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kIdleMax) {
    idle_.push_back(std::move(session));
  }
}

Result<net::HttpClientRequest> Client::make_request(const Call& call) {
  net::HttpClientRequest request{
      .method = call.method, .url = config_.access.server + call.path, .body = call.body};
  STATOR_TRY(const std::string bearer, token(false));
  request.headers = {{"accept", "application/json"}, {"user-agent", config_.agent}};
  if (!bearer.empty()) {
    request.headers.emplace_back("authorization", "Bearer " + bearer);
  }
  if (!call.content_type.empty()) {
    request.headers.emplace_back("content-type", call.content_type);
  }
  return request;
}

Result<net::HttpClientResponse> Client::send_raw(const Call& call, Duration timeout,
                                                 const net::OnChunk& on_chunk) {
  STATOR_TRY(const net::HttpClientRequest request, make_request(call));
  net::HttpClientOptions options{.timeout = timeout,
                                 .stall_timeout = Duration::zero(),
                                 .follow_redirects = false,
                                 .tls_insecure = config_.access.insecure};
  requests_.add();
  auto session = take_session();
  auto response = session->request(request, options, on_chunk);
  if (response) {
    give_session(std::move(session));
  }
  return response;
}

Result<Value> Client::send(const Call& call) {
  const std::string what = fmt::format("{} {}", call.method, call.path);
  for (uint32_t attempt = 0;; ++attempt) {
    if (stopping_.load()) {
      return Error(Code::kCancelled, "the client of the API server was stopped");
    }
    if (call.is_write) {
      STATOR_CHECK(wait_for_turn());
    }
    auto response = send_raw(call, config_.timeout, {});
    const bool last = attempt >= config_.retries_max;
    if (!response) {
      // A broken connection: a write may have been done, and all of ours can be done twice.
      if (last || response.error().code() == Code::kInvalidArgument) {
        failures_.add();
        return std::move(response.error());
      }
      retries_.add();
      wait(std::min<Duration>(kBackOffFirst * (1 << attempt), kBackOffMax));
      continue;
    }
    const int status = response->status;
    if (status >= 200 && status < 300) {
      if (call.is_write) {
        writes_done_.fetch_add(1);
      }
      return response->body.empty() ? Result<Value>(Value()) : json::parse(response->body);
    }
    if (status == 401 && attempt == 0 && token(true)) {
      continue;
    }
    if (!last && (status == 429 || status == 503 || status == 504)) {
      retries_.add();
      wait(retry_after(*response, attempt));
      continue;
    }
    failures_.add();
    return to_error(status, response->body, what);
  }
}

Result<Value> Client::get_path(std::string_view path) {
  return send({.method = "GET", .path = std::string(path)});
}

Result<Value> Client::get(const Resource& resource, const ObjectName& name) {
  return send({.method = "GET", .path = path_of(resource, name.space, name.name)});
}

Result<std::string> Client::list_page(const Resource& resource, const Selection& selection,
                                      std::string& next, const OnObject& on_object) {
  std::string path = path_of(resource, selection.space) +
                     fmt::format("?limit={}", config_.list_page) + query_of(selection);
  if (!next.empty()) {
    path += "&continue=" + escaped(next);
  }
  ObjectSplitter splitter(ObjectSplitter::Mode::kItems);
  Status failed;
  const auto on_item = [&](std::string_view text) -> Status {
    STATOR_TRY(Value object, json::parse(text), "reading a list");
    // Items of a list do not say what they are.
    if (object.find("kind") == nullptr) {
      object["apiVersion"] = resource.api_version();
      object["kind"] = resource.kind;
    }
    return on_object(std::move(object));
  };
  const Call call{.method = "GET", .path = path};
  const auto response = send_raw(call, config_.timeout, [&](std::string_view bytes) {
    failed = splitter.feed(bytes, on_item);
    return failed.has_value();
  });
  if (!failed) {
    return std::move(failed.error());
  }
  if (!response) {
    return response.error().clone();
  }
  if (response->status != 200) {
    return to_error(response->status, splitter.envelope(),
                    fmt::format("listing {}", resource.plural));
  }
  STATOR_TRY(const Value list, json::parse(splitter.envelope()), "reading a list");
  next = list.text_at({"metadata", "continue"});
  return std::string(list.text_at({"metadata", "resourceVersion"}));
}

Result<std::string> Client::list(const Resource& resource, const Selection& selection,
                                 const OnObject& on_object) {
  std::string next;
  std::string version;
  do {
    if (stopping_.load()) {
      return Error(Code::kCancelled, "the client of the API server was stopped");
    }
    STATOR_TRY(version, list_page(resource, selection, next, on_object));
  } while (!next.empty());
  return version;
}

Result<std::string> Client::watch(const Resource& resource, const Selection& selection,
                                  std::string version, const OnEvent& on_event) {
  const std::string path =
      path_of(resource, selection.space) +
      fmt::format("?watch=1&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
                  std::chrono::duration_cast<std::chrono::seconds>(kWatchTime).count(),
                  escaped(version)) +
      query_of(selection);
  ObjectSplitter splitter(ObjectSplitter::Mode::kValues);
  Status failed;
  std::string body;  // of a refusal
  const auto on_line = [&](std::string_view text) -> Status {
    body = text.size() < 4096 ? std::string(text) : std::string();
    STATOR_TRY(Value line, json::parse(text), "reading a watch");
    if (line.text_at({"kind"}) == "Status") {
      return {};  // the answer is no stream: its status says so
    }
    STATOR_TRY(WatchEvent event, to_watch_event(std::move(line)));
    if (event.type == "ERROR") {
      return to_error(static_cast<int>(int_at(event.object, {"code"}, 500)),
                      json::to_text(event.object), fmt::format("watching {}", resource.plural));
    }
    const std::string seen(event.object.text_at({"metadata", "resourceVersion"}));
    if (event.type != "BOOKMARK") {
      STATOR_CHECK(on_event(std::move(event)));
    }
    version = seen;
    return {};
  };
  const Call call{.method = "GET", .path = path};
  const auto response = send_raw(call, kWatchTime + 30s, [&](std::string_view bytes) {
    failed = splitter.feed(bytes, on_line);
    return failed.has_value() && !stopping_.load();
  });
  if (!failed) {
    return std::move(failed.error());
  }
  if (response && response->status != 200) {
    return to_error(response->status, body, fmt::format("watching {}", resource.plural));
  }
  if (!response && response.error().code() == Code::kUnavailable) {
    return response.error().clone();
  }
  return version;  // an end of the stream is normal, however it comes
}

Result<Value> Client::apply(const Resource& resource, const Value& object,
                            const ApplyOptions& options) {
  const ObjectName name = name_of(object);
  std::string path = path_of(resource, name.space, name.name, options.subresource) +
                     fmt::format("?fieldManager={}", escaped(options.manager));
  if (options.force) {
    path += "&force=true";
  }
  if (options.dry_run) {
    path += "&dryRun=All";
  }
  return send({.method = "PATCH",
               .path = path,
               .content_type = "application/apply-patch+yaml",
               .body = json::to_text(object),
               .is_write = true});
}

Result<Value> Client::create(const Resource& resource, const Value& object) {
  return send({.method = "POST",
               .path = path_of(resource, name_of(object).space),
               .content_type = "application/json",
               .body = json::to_text(object),
               .is_write = true});
}

Result<Value> Client::replace(const Resource& resource, const Value& object,
                              std::string_view subresource) {
  const ObjectName name = name_of(object);
  return send({.method = "PUT",
               .path = path_of(resource, name.space, name.name, subresource),
               .content_type = "application/json",
               .body = json::to_text(object),
               .is_write = true});
}

Result<Value> Client::merge_patch(const Resource& resource, const ObjectName& name,
                                  const Value& patch, std::string_view subresource) {
  return send({.method = "PATCH",
               .path = path_of(resource, name.space, name.name, subresource),
               .content_type = "application/merge-patch+json",
               .body = json::to_text(patch),
               .is_write = true});
}

Result<Value> Client::json_patch(const Resource& resource, const ObjectName& name,
                                 const Value& patch, std::string_view subresource) {
  return send({.method = "PATCH",
               .path = path_of(resource, name.space, name.name, subresource),
               .content_type = "application/json-patch+json",
               .body = json::to_text(patch),
               .is_write = true});
}

Status Client::remove(const Resource& resource, const ObjectName& name, std::string_view uid) {
  Value options = Value::object();
  options["apiVersion"] = "v1";
  options["kind"] = "DeleteOptions";
  options["propagationPolicy"] = "Background";
  if (!uid.empty()) {
    options["preconditions"]["uid"] = uid;
  }
  const auto answer = send({.method = "DELETE",
                            .path = path_of(resource, name.space, name.name),
                            .content_type = "application/json",
                            .body = json::to_text(options),
                            .is_write = true});
  if (!answer && answer.error().code() != Code::kNotFound) {
    return answer.error().clone();
  }
  return {};
}

}  // namespace stator::kube
