// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/lab/loadgen/detail/local_ports.h"
#include "stator/lab/loadgen/detail/wire.h"
#include "stator/lab/loadgen/dispatcher.h"
#include "stator/lab/loadgen/records.h"
#include "stator/lab/loadgen/request_builder.h"
#include "stator/lab/loadgen/response_reader.h"
#include "stator/net/event_loop.h"

namespace stator::loadgen {

struct LoopOptions {
  DispatchOptions dispatch;
  Duration request_timeout = std::chrono::minutes(10);
  /// How long answers may take after the last launch of a run with a duration; then cut off.
  Duration drain_timeout = std::chrono::seconds(30);
  double cancel_share = 0;  ///< of the requests, hung up on `cancel_after` after they were sent
  Duration cancel_after{};
  uint64_t records_max = 4'000'000;
  uint64_t failures_in_row_max = 1000;  ///< then the run ends; 0 = never
  bool reuse_connections = true;
  uint64_t seed = 1;
};

/// What a running loop tells about itself; read from other threads, no order between fields.
struct alignas(64) LiveCounters {
  std::atomic<uint64_t> sent{0};
  std::atomic<uint64_t> answered{0};
  std::atomic<uint64_t> failed{0};
  std::atomic<uint64_t> chunks{0};
  std::atomic<uint64_t> in_flight{0};
  std::atomic<uint64_t> backlog{0};
  std::atomic<uint64_t> latency_ns{0};  ///< sum over the answered
  std::atomic<uint64_t> first_ns{0};    ///< sum of times to the first chunk …
  std::atomic<uint64_t> firsts{0};      ///< … and how many there were
  std::atomic<uint64_t> busy_ns{0};
};

/// One thread of a run: sends what its Dispatcher says, on its own connections, and reads answers.
/// One loop, one request in flight per connection, HTTP/1.1 keep-alive.
///
/// L1  A connection is idle (in idle_), or busy with one request, or closed; `busy_` counts.
/// L2  Each launch ends in exactly one record.
/// L3  Requests of new sessions are written ahead of their time, at most kPreparedBytesMax.
/// L4  While looks at the sockets free connections, or something else was sent since the last look,
///     none is opened: opening costs several times what sending does, so a loop that is late would
///     open more and more and fall behind for good.
class LoadLoop {
 public:
  static constexpr size_t kPreparedBytesMax = 8 << 20;
  static constexpr size_t kPreparedMax = 256;
  static constexpr size_t kHistoryBytesMax = 4 << 20;            ///< of a session
  static constexpr size_t kHistoriesBytesMax = size_t{1} << 30;  ///< of all of a thread

  /// All references must outlive it; `tls` may be null.
  LoadLoop(const LoopOptions& options, const Workload& workload, const RequestBuilder& builder,
           const Address& address, const detail::TlsSettings* tls);
  ~LoadLoop();
  LoadLoop(const LoadLoop&) = delete;
  LoadLoop& operator=(const LoadLoop&) = delete;

  /// Runs to the end of the load, on the calling thread. Times are counted from `start`. `stop`
  /// ends it early: what is in flight is cut off.
  ThreadResult run(const Clock& clock, TimePoint start, const std::atomic<bool>& stop,
                   LiveCounters& live);

 private:
  struct Connection;
  /// Connections in order of a deadline that is the same for all after their start.
  struct DeadlineList {
    Connection* head = nullptr;
    Connection* tail = nullptr;
  };
  enum class List : uint8_t { kTimeout, kCancel };

  int64_t elapsed() const;
  void launch_due();
  void launch(const Launch& launch);
  void take_prepared(const Launch& launch, std::string& request);
  void prepare_one();
  Connection* take_connection();
  void begin(Connection& connection);
  bool connect(Connection& connection);
  enum class Wants : uint8_t { kRead, kBoth };
  void watch(Connection& connection, Wants wants);
  void send_rest(Connection& connection);
  void on_event(Connection& connection, net::Ready ready);
  void on_connected(Connection& connection);
  void on_readable(Connection& connection);
  void on_bytes(Connection& connection, std::string_view bytes);
  void note_chunks(Connection& connection, uint32_t chunks, int64_t now);
  void on_closed(Connection& connection, const std::string& why);
  bool retry(Connection& connection);
  void finish_answer(Connection& connection, ResponseReader::State state);
  void finish(Connection& connection, Outcome outcome, const std::string& error);
  void keep_history(Connection& connection, Dispatcher::Outcome& outcome);
  void forget_history(uint64_t session);
  void record_dropped(const Launch& launch);
  void expire(int64_t now);
  void cut_off(Outcome outcome);
  void wait_and_handle();
  size_t wait_for_events(Duration wait);
  Duration wait_time(int64_t now);
  void add_to(List list, Connection& connection);
  void remove_from(List list, Connection& connection);
  bool over(int64_t now);
  void publish(LiveCounters& live, int64_t busy);
  void run_loop(const std::atomic<bool>& stop, LiveCounters& live);

  const LoopOptions options_;
  const Workload& workload_;
  const RequestBuilder& builder_;
  const Address address_;
  const detail::TlsSettings* tls_;
  const Clock* clock_ = nullptr;
  TimePoint start_{};
  Dispatcher dispatcher_;
  ThreadResult result_;
  detail::LocalPorts local_ports_;
  std::vector<std::unique_ptr<Connection>> connections_;
  net::EventLoop events_;  // goes before those whom it calls
  std::vector<Connection*> idle_;
  std::vector<Connection*> closed_;
  DeadlineList deadlines_[2];
  std::vector<char> buffer_;
  struct Prepared {
    uint64_t session;
    std::string request;
  };
  std::deque<Prepared> prepared_;
  size_t prepared_bytes_ = 0;
  uint64_t prepare_next_;
  FlatMap<uint64_t, std::string> histories_;
  size_t histories_bytes_ = 0;
  int64_t due_at_ = INT64_MAX;  // of the next launch, as of the last look at the schedule
  int64_t awake_ns_ = 0;        // spent awake with nothing to do, for the next launch
  int64_t handled_ns_ = 0;      // spent on events after the last wait
  uint64_t chunks_ = 0;
  uint64_t answered_ = 0;
  uint64_t failed_ = 0;
  uint64_t failures_in_row_ = 0;
  uint64_t sent_ = 0;
  uint64_t sent_at_look_ = 0;  // sent_ at the last look at the sockets
  uint64_t latency_ns_ = 0;
  uint64_t first_ns_ = 0;
  uint64_t firsts_ = 0;
};

}  // namespace stator::loadgen
