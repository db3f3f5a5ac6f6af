// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/net/http_client.h"

namespace stator::net {

/// Names one exchange of an HttpStreams; never reused.
using HttpStreamId = uint64_t;

/// Told what comes in, on the thread inside HttpStreams::turn(). May call start() and cancel().
class HttpStreamsListener {
 public:
  virtual ~HttpStreamsListener() = default;
  /// The answer begins; once, before its first byte.
  virtual void on_head(HttpStreamId stream, int status, std::string_view content_type) = 0;
  virtual void on_bytes(HttpStreamId stream, std::string_view bytes) = 0;
  /// The last word on a stream, unless it was cancelled. Errors as of http_request().
  virtual void on_end(HttpStreamId stream, Status status) = 0;
};

/// Many HTTP/1.1 exchanges at once on one thread, their answers handed on as they arrive: for
/// streams from inference engines. libcurl behind epoll; connections are kept and reused.
///
///   STATOR_TRY(auto streams, HttpStreams::create({}, listener, clock));
///   streams->start({.method = "POST", .url = url, .body = body}, options);
///   while (!stopping) streams->turn(100ms);
///
/// N1  on_end comes exactly once per started stream, or never after its cancel().
/// N2  cancel() closes the connection of a stream under way: that is how engines learn of it.
/// N3  At most `streams_max` streams run; at most `idle_connections_max` connections wait for
/// reuse.
///
/// Everything is called by one thread, except wake(). `listener` and `clock` outlive it.
class HttpStreams {
 public:
  struct Config {
    size_t streams_max = 8192;
    size_t idle_connections_max = 64;
  };
  /// kIo when the system gives no descriptor.
  static Result<std::unique_ptr<HttpStreams>> create(const Config& config,
                                                     HttpStreamsListener& listener,
                                                     const Clock& clock);
  HttpStreams(const HttpStreams&) = delete;
  HttpStreams& operator=(const HttpStreams&) = delete;
  /// Cancels what runs.
  virtual ~HttpStreams() = default;

  /// kOverloaded beyond `streams_max`, kInvalidArgument for a request that cannot be sent.
  /// Redirects are not followed.
  virtual Result<HttpStreamId> start(HttpClientRequest request,
                                     const HttpClientOptions& options) = 0;
  /// The same to these addresses of the URL's host only, "192.0.2.7" or "2001:db8::7", at least
  /// one: no name is looked up, no proxy asked, no connection of before used or kept.
  virtual Result<HttpStreamId> start_pinned(HttpClientRequest request,
                                            const HttpClientOptions& options,
                                            std::vector<std::string> addresses) = 0;
  /// Unknown streams are ignored.
  virtual void cancel(HttpStreamId stream) = 0;
  virtual size_t running() const = 0;
  /// Within on_head() and on_bytes(): the last header of that name; empty if there is none. The
  /// view lasts as long as the callback.
  virtual std::string_view header(HttpStreamId stream, const std::string& name) const = 0;

  /// Waits at most `wait_max` for something to happen or for wake(), then handles all that is
  /// there.
  virtual void turn(Duration wait_max) = 0;
  /// Any thread: ends the wait of the current or next turn.
  virtual void wake() noexcept = 0;

 protected:
  HttpStreams() = default;
};

}  // namespace stator::net
