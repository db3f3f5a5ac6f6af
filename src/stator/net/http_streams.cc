// SPDX-License-Identifier: Apache-2.0
#include "stator/net/http_streams.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/net/detail/curl_request.h"
#include "stator/net/detail/socket.h"

namespace stator::net {
namespace {

// Sockets handled per wait; more are handled in the next turn.
constexpr int kEventsPerTurn = 128;

struct MultiDeleter {
  void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};

uint32_t to_epoll(int what) {
  switch (what) {
    case CURL_POLL_IN:
      return EPOLLIN;
    case CURL_POLL_OUT:
      return EPOLLOUT;
    default:
      return EPOLLIN | EPOLLOUT;
  }
}

int to_curl(uint32_t events) {
  int mask = 0;
  mask |= (events & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0;
  mask |= (events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0;
  mask |= (events & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0;
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

  static size_t on_body(char* data, size_t size, size_t count, void* user);
  static int on_socket(CURL* easy, curl_socket_t socket, int what, void* user, void* known);
  static int on_timer(CURLM* multi, long timeout_ms, void* user);

  void tell_head(Stream& stream);
  void drive(curl_socket_t socket, int mask);
  void collect_finished();
  void remove_cancelled();
  void remove(Stream& stream);
  int wait_ms(Duration wait_max) const;

  const Config config_;
  HttpStreamsListener& listener_;
  const Clock& clock_;
  detail::FileDescriptor epoll_;
  detail::FileDescriptor wake_;
  std::unique_ptr<CURLM, MultiDeleter> multi_;
  std::optional<TimePoint> timer_;  // when libcurl wants to be called without an event
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
  epoll_ = detail::FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  wake_ = detail::FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  multi_.reset(curl_multi_init());
  epoll_event event{.events = EPOLLIN, .data = {.fd = wake_.get()}};
  if (!epoll_.open() || !wake_.open() || multi_ == nullptr ||
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    return Error(Code::kIo, "no descriptors for HTTP streams: " + detail::error_text(errno));
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
  const uint64_t one = 1;
  static_cast<void>(::write(wake_.get(), &one, sizeof(one)));
}

int Streams::wait_ms(Duration wait_max) const {
  Duration wait = wait_max;
  if (timer_) {
    wait = std::min(wait, *timer_ - clock_.now());
  }
  return static_cast<int>(
      std::chrono::ceil<std::chrono::milliseconds>(std::max(wait, Duration::zero())).count());
}

void Streams::turn(Duration wait_max) {
  std::array<epoll_event, kEventsPerTurn> events;
  const int count = epoll_wait(epoll_.get(), events.data(), kEventsPerTurn, wait_ms(wait_max));
  driving_ = true;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.fd == wake_.get()) {
      uint64_t ignored = 0;
      static_cast<void>(::read(wake_.get(), &ignored, sizeof(ignored)));
    } else {
      drive(event.data.fd, to_curl(event.events));
    }
  }
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

int Streams::on_socket(CURL* /*easy*/, curl_socket_t socket, int what, void* user, void* known) {
  auto& self = *static_cast<Streams*>(user);
  if (what == CURL_POLL_REMOVE) {
    static_cast<void>(epoll_ctl(self.epoll_.get(), EPOLL_CTL_DEL, socket, nullptr));
    return 0;
  }
  epoll_event event{.events = to_epoll(what), .data = {.fd = socket}};
  const int operation = known == nullptr ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (epoll_ctl(self.epoll_.get(), operation, socket, &event) != 0 && errno == EEXIST) {
    static_cast<void>(epoll_ctl(self.epoll_.get(), EPOLL_CTL_MOD, socket, &event));
  }
  static_cast<void>(curl_multi_assign(self.multi_.get(), socket, user));
  return 0;
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
