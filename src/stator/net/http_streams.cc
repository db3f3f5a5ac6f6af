// SPDX-License-Identifier: Apache-2.0
#include "stator/net/http_streams.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/net/detail/curl_request.h"
#include "stator/net/event_loop.h"

namespace stator::net {
namespace {

struct MultiDeleter {
  void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};

EventLoop::Interest to_interest(int what) {
  return {.read = what != CURL_POLL_OUT, .write = what != CURL_POLL_IN};
}

int to_curl(Ready ready) {
  int mask = 0;
  mask |= ready.readable ? CURL_CSELECT_IN : 0;
  mask |= ready.writable ? CURL_CSELECT_OUT : 0;
  mask |= ready.broken ? CURL_CSELECT_ERR : 0;
  return mask;
}

class Streams final : public HttpStreams {
 public:
  Streams(const Config& config, HttpStreamsListener& listener, const Clock& clock)
      : config_(config), listener_(listener), clock_(clock) {}
  ~Streams() override;

  Status open();
  Result<HttpStreamId> start(HttpClientRequest request, const HttpClientOptions& options) override {
    return start_pinned(std::move(request), options, {});
  }
  Result<HttpStreamId> start_pinned(HttpClientRequest request, const HttpClientOptions& options,
                                    std::vector<std::string> addresses) override;
  void cancel(HttpStreamId stream) override;
  size_t running() const override { return streams_.size(); }
  std::string_view header(HttpStreamId stream, const std::string& name) const override;
  void turn(Duration wait_max) override;
  void wake() noexcept override;

 private:
  struct Stream {
    Streams* owner;
    HttpStreamId id;
    HttpClientRequest request;
    std::vector<std::string> addresses;  // empty: not pinned
    detail::CurlRequest curl;
    char detail[CURL_ERROR_SIZE] = "";
    bool told_head = false;
    bool cancelled = false;
  };

  /// One of libcurl's, which opens and closes it.
  struct Socket final : ReadyHandler {
    Socket(Streams& owner_in, curl_socket_t fd_in) : owner(owner_in), fd(fd_in) {}
    // What libcurl does may destroy this.
    void on_ready(Ready ready) override { owner.drive(fd, to_curl(ready)); }
    Streams& owner;
    const curl_socket_t fd;
    EventLoop::Key key = EventLoop::kNoKey;
  };

  static size_t on_body(char* data, size_t size, size_t count, void* user);
  static int on_socket(CURL* easy, curl_socket_t socket, int what, void* user, void* known);
  static int on_timer(CURLM* multi, long timeout_ms, void* user);

  void tell_head(Stream& stream);
  void drive(curl_socket_t socket, int mask);
  void collect_finished();
  void remove_cancelled();
  void remove(Stream& stream);
  void watch(curl_socket_t socket, int what);
  Duration wait_time(Duration wait_max) const;

  const Config config_;
  HttpStreamsListener& listener_;
  const Clock& clock_;
  FlatMap<curl_socket_t, std::unique_ptr<Socket>> sockets_;
  EventLoop loop_;                              // goes before those whom it calls
  std::unique_ptr<CURLM, MultiDeleter> multi_;  // goes before what its callbacks use
  std::optional<TimePoint> timer_;              // when libcurl wants to be called without an event
  FlatMap<HttpStreamId, std::unique_ptr<Stream>> streams_;
  std::vector<HttpStreamId> cancelled_;  // to be removed when no callback is under way
  HttpStreamId next_id_ = 1;
  bool driving_ = false;
};

Streams::~Streams() {
  for (auto& [id, stream] : streams_) {
    static_cast<void>(curl_multi_remove_handle(multi_.get(), stream->curl.handle.get()));
  }
  streams_.clear();
}

Status Streams::open() {
  STATOR_CHECK(loop_.opened());
  multi_.reset(curl_multi_init());
  if (multi_ == nullptr) {
    return Error(Code::kIo, "no memory for HTTP streams");
  }
  CURLM* multi = multi_.get();
  curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, &on_socket);
  curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, this);
  curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, &on_timer);
  curl_multi_setopt(multi, CURLMOPT_TIMERDATA, this);
  curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, static_cast<long>(config_.idle_connections_max));
  return {};
}

Result<HttpStreamId> Streams::start_pinned(HttpClientRequest request,
                                           const HttpClientOptions& options,
                                           std::vector<std::string> addresses) {
  if (streams_.size() >= config_.streams_max) {
    return Error(Code::kOverloaded,
                 fmt::format("{} HTTP exchanges are under way already", streams_.size()));
  }
  auto stream = std::make_unique<Stream>(Stream{.owner = this,
                                                .id = next_id_,
                                                .request = std::move(request),
                                                .addresses = std::move(addresses),
                                                .curl = {}});
  HttpClientOptions own = options;
  own.follow_redirects = false;
  STATOR_TRY(stream->curl, detail::make_curl_request(stream->request, own));
  if (!stream->addresses.empty()) {
    detail::pin(stream->curl, stream->request.url, stream->addresses);
  }
  CURL* handle = stream->curl.handle.get();
  void* self = stream.get();
  detail::set(handle, CURLOPT_ERRORBUFFER, static_cast<char*>(stream->detail));
  detail::set(handle, CURLOPT_WRITEFUNCTION, &on_body);
  detail::set(handle, CURLOPT_WRITEDATA, self);
  detail::set(handle, CURLOPT_PRIVATE, self);
  detail::set(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  if (const CURLMcode added = curl_multi_add_handle(multi_.get(), handle); added != CURLM_OK) {
    return Error(Code::kInternal, fmt::format("libcurl: {}", curl_multi_strerror(added)));
  }
  streams_.emplace(next_id_, std::move(stream));
  return next_id_++;
}

std::string_view Streams::header(HttpStreamId stream, const std::string& name) const {
  const auto found = streams_.find(stream);
  curl_header* header = nullptr;
  const bool there =
      found != streams_.end() && curl_easy_header(found->second->curl.handle.get(), name.c_str(), 0,
                                                  CURLH_HEADER, -1, &header) == CURLHE_OK;
  return there ? std::string_view(header->value) : std::string_view();
}

void Streams::cancel(HttpStreamId stream) {
  const auto found = streams_.find(stream);
  if (found == streams_.end() || found->second->cancelled) {
    return;
  }
  found->second->cancelled = true;
  if (driving_) {
    cancelled_.push_back(stream);  // libcurl does not allow it inside its callbacks
  } else {
    remove(*found->second);
  }
}

void Streams::remove(Stream& stream) {
  static_cast<void>(curl_multi_remove_handle(multi_.get(), stream.curl.handle.get()));
  const HttpStreamId id = stream.id;
  streams_.erase(id);
}

void Streams::remove_cancelled() {
  for (const HttpStreamId id : std::exchange(cancelled_, {})) {
    if (const auto found = streams_.find(id); found != streams_.end()) {
      remove(*found->second);
    }
  }
}

void Streams::wake() noexcept {
  loop_.wake();
}

Duration Streams::wait_time(Duration wait_max) const {
  Duration wait = wait_max;
  if (timer_) {
    wait = std::min<Duration>(wait, *timer_ - clock_.now());
  }
  return std::chrono::ceil<std::chrono::milliseconds>(std::max(wait, Duration::zero()));
}

void Streams::turn(Duration wait_max) {
  driving_ = true;
  loop_.turn(wait_time(wait_max));
  if (timer_ && clock_.now() >= *timer_) {
    timer_.reset();
    drive(CURL_SOCKET_TIMEOUT, 0);
  }
  collect_finished();
  driving_ = false;
  remove_cancelled();
}

void Streams::drive(curl_socket_t socket, int mask) {
  int running = 0;
  static_cast<void>(curl_multi_socket_action(multi_.get(), socket, mask, &running));
}

void Streams::collect_finished() {
  int left = 0;
  while (CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
    if (message->msg != CURLMSG_DONE) {
      continue;
    }
    const CURLcode outcome = message->data.result;
    char* user = nullptr;
    static_cast<void>(curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &user));
    auto& stream = *static_cast<Stream*>(static_cast<void*>(user));
    static_cast<void>(curl_multi_remove_handle(multi_.get(), stream.curl.handle.get()));
    if (outcome == CURLE_OK && !stream.cancelled) {
      tell_head(stream);
    }
    const auto found = streams_.find(stream.id);
    const auto owned = std::move(found->second);  // outlives the callback, which may start others
    streams_.erase(found);
    if (owned->cancelled) {
      continue;
    }
    if (outcome == CURLE_OK) {
      listener_.on_end(owned->id, {});
    } else {
      listener_.on_end(owned->id, detail::to_error(outcome, owned->request, owned->detail));
    }
  }
}

void Streams::tell_head(Stream& stream) {
  if (std::exchange(stream.told_head, true)) {
    return;
  }
  long status = 0;
  const char* type = nullptr;
  static_cast<void>(curl_easy_getinfo(stream.curl.handle.get(), CURLINFO_RESPONSE_CODE, &status));
  static_cast<void>(curl_easy_getinfo(stream.curl.handle.get(), CURLINFO_CONTENT_TYPE, &type));
  listener_.on_head(stream.id, static_cast<int>(status),
                    type != nullptr ? std::string_view(type) : std::string_view());
}

size_t Streams::on_body(char* data, size_t size, size_t count, void* user) {
  auto& stream = *static_cast<Stream*>(user);
  const size_t bytes = size * count;
  Streams& owner = *stream.owner;
  if (!stream.cancelled) {
    owner.tell_head(stream);
  }
  if (!stream.cancelled) {
    owner.listener_.on_bytes(stream.id, {data, bytes});
  }
  return stream.cancelled ? 0 : bytes;
}

int Streams::on_socket(CURL* /*easy*/, curl_socket_t socket, int what, void* user,
                       void* /*known*/) {
  static_cast<Streams*>(user)->watch(socket, what);
  return 0;
}

void Streams::watch(curl_socket_t socket, int what) {
  const auto found = sockets_.find(socket);
  if (what == CURL_POLL_REMOVE) {
    if (found != sockets_.end()) {
      loop_.remove(found->second->key, socket);
      sockets_.erase(found);
    }
    return;
  }
  if (found != sockets_.end()) {
    return loop_.change(found->second->key, socket, to_interest(what));
  }
  auto added = std::make_unique<Socket>(*this, socket);
  if (auto key = loop_.add(socket, to_interest(what), *added)) {
    added->key = *key;
    sockets_.emplace(socket, std::move(added));
  }
}

int Streams::on_timer(CURLM* /*multi*/, long timeout_ms, void* user) {
  auto& self = *static_cast<Streams*>(user);
  self.timer_.reset();
  if (timeout_ms >= 0) {
    self.timer_ = self.clock_.now() + std::chrono::milliseconds(timeout_ms);
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<HttpStreams>> HttpStreams::create(const Config& config,
                                                         HttpStreamsListener& listener,
                                                         const Clock& clock) {
  auto streams = std::make_unique<Streams>(config, listener, clock);
  STATOR_CHECK(streams->open());
  return streams;
}

}  // namespace stator::net
