// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <cstddef>
#include <expected>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "options.h"
#include "report.h"
#include "response_parser.h"

namespace stator::bench {

/// Closed-loop and hold load from one thread: epoll, HTTP/1.1 keep-alive, one request in flight per
/// connection.
///
/// I1  The measured window opens once and closes once; answers and events count if they arrive in
///     it, and CPU time is read at both ends.
/// I2  `busy_` connections wait for an answer; the run is over when none does and no request is
///     left, or at the end of the window.
class Generator {
 public:
  static std::expected<std::unique_ptr<Generator>, std::string> create(Options options);
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  /// Runs to the end of --requests or --seconds.
  Report run_closed_loop();
  /// Opens the streams of --hold and returns when each had its first text, failed, or time is up.
  Report run_hold();
  /// Keeps reading until standard input ends.
  void hold_until_input_ends();

 private:
  using Time = std::chrono::steady_clock::time_point;

  struct Connection {
    int fd = -1;
    bool busy = false;       ///< a request was sent and its answer is not complete
    bool seen_text = false;  ///< of the current answer
    bool waits_writable = false;
    Time sent_at{};
    std::string_view unsent;  ///< into `requests_`
    ResponseParser parser;
  };

  explicit Generator(Options options);
  void build_requests();
  bool dial(Connection& connection);
  void hang_up(Connection& connection);
  void start_next(Connection& connection);
  void send_rest(Connection& connection);
  void poll_once(int timeout_ms);
  void on_readable(Connection& connection);
  void take(Connection& connection, std::string_view bytes);
  void finish(Connection& connection, ResponseParser::State state);
  void fail(Connection& connection, const std::string& kind);
  void open_window();
  void close_window();
  bool may_send() const;

  const Options options_;
  sockaddr_in server_{};
  sockaddr_in source_{};
  int epoll_ = -1;
  std::vector<std::string> requests_;  ///< head and body, ready to be sent
  std::vector<Connection> connections_;
  std::vector<char> buffer_;
  size_t sent_ = 0;
  size_t busy_ = 0;
  size_t first_texts_ = 0;
  size_t failed_ = 0;
  bool measuring_ = false;
  bool stopping_ = false;
  bool input_ended_ = false;
  Time window_start_{};
  Report report_;
};

}  // namespace stator::bench
