// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace stator::kv_events::test {

/// An engine's event publisher as a process of its own, with real sockets: this test binary,
/// started again with a variable in its environment. Numbers its messages from 0, remembers them,
/// and answers replays like vLLM.
class PublisherProcess {
 public:
  struct Ports {
    uint16_t live = 0;  ///< 0: any
    uint16_t replay = 0;
  };
  /// Returns when its sockets are bound.
  PublisherProcess() : PublisherProcess(Ports{}) {}
  explicit PublisherProcess(Ports ports);
  PublisherProcess(const PublisherProcess&) = delete;
  PublisherProcess& operator=(const PublisherProcess&) = delete;
  ~PublisherProcess();

  void publish(std::string_view payload) { command("publish", payload); }
  /// Numbered and remembered, but never sent: what a slow subscriber loses.
  void lose(std::string_view payload) { command("lose", payload); }
  /// The same, and replays no longer reach back to it or beyond.
  void lose_and_forget(std::string_view payload) { command("forget", payload); }
  /// Sends frames that no engine would.
  void publish_garbage() { command("garbage", ""); }
  /// kill -9.
  void kill();
  void freeze();
  void thaw();

  Ports ports() const { return ports_; }
  std::string endpoint() const;
  std::string replay_endpoint() const;

 private:
  void command(std::string_view verb, std::string_view payload);
  std::string read_line();

  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  Ports ports_;
};

}  // namespace stator::kv_events::test
