// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/load_loop_service.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "stator/core/assert.h"
#include "stator/core/random.h"

namespace stator::loadgen {
namespace {

constexpr size_t kReadBytes = 256 << 10;
constexpr size_t kKeptRequestBytes = 16 << 10;  // larger buffers are freed once sent
constexpr size_t kManyConnections = 2000;
constexpr int kPortTries = 16;         // taken ones passed over before the kernel is asked
constexpr size_t kEventsPerLook = 16;  // events handled before a connection may be opened
constexpr int kLaunchesPerLook = 64;   // requests sent before answers are looked at again
// A user of a closed loop who lost the connection waits so long: a dead server must not spin us.
constexpr Duration kAfterLostConnection = std::chrono::milliseconds(10);
constexpr int64_t kWaitMaxNs = 50'000'000;
// Longer than a timer usually is late, short enough to leave most of a core to others.
constexpr int64_t kAwakeNs = 60'000;
// A request is prepared ahead only if nothing is due for so long.
constexpr int64_t kPrepareSlackNs = 300'000;

std::string error_name(int error) {
  const char* text = ::strerrordesc_np(error);
  std::string out = text != nullptr ? text : "error " + std::to_string(error);
  if (error == EADDRNOTAVAIL) {
    out += " (no local port left: widen net.ipv4.ip_local_port_range)";
  }
  return out;
}

/// What the scheduler knows about this thread: how long it ran, and how long it was ready to run
/// but had no core. Zeros where the kernel does not tell.
struct ThreadTimes {
  int64_t ran_ns = 0;
  int64_t starved_ns = 0;
};

ThreadTimes read_thread_times() {
  std::ifstream file("/proc/thread-self/schedstat");
  ThreadTimes times;
  file >> times.ran_ns >> times.starved_ns;
  return file ? times : ThreadTimes{};
}

}  // namespace

struct LoadLoop::Connection final : net::ReadyHandler {
  enum class State : uint8_t { kClosed, kConnecting, kIdle, kBusy };
  struct Link {
    Connection* before = nullptr;
    Connection* after = nullptr;
    int64_t deadline = 0;
    bool linked = false;
  };

  explicit Connection(LoadLoop& loop_in) : loop(loop_in) {}
  void on_ready(net::Ready ready) override { loop.on_event(*this, ready); }
  void close() {
    loop.events_.remove(std::exchange(key, net::EventLoop::kNoKey));
    wire.close();
  }

  LoadLoop& loop;
  net::EventLoop::Key key = net::EventLoop::kNoKey;  // of the socket; another one for each
  State state = State::kClosed;
  Wants watched = Wants::kRead;
  bool reused = false;   // its socket has carried an answer before
  bool retried = false;  // the request was sent again on a new socket
  uint32_t turn = 0;
  uint64_t session = 0;
  detail::Wire wire;
  std::string request;
  size_t request_sent = 0;
  ResponseReader reader;
  std::string answer;  // text for the next turn
  Record record;
  int64_t last_chunk = 0;
  Link links[2];
};

LoadLoop::LoadLoop(const LoopOptions& options, const Workload& workload,
                   const RequestBuilder& builder, const Address& address,
                   const detail::TlsSettings* tls)
    : options_(options),
      workload_(workload),
      builder_(builder),
      address_(address),
      tls_(tls),
      dispatcher_(workload, options.dispatch),
      local_ports_(detail::LocalPorts::of_system(options.dispatch.share, options.dispatch.shares)),
      buffer_(kReadBytes),
      prepare_next_(options.dispatch.share) {}

LoadLoop::~LoadLoop() = default;

int64_t LoadLoop::elapsed() const {
  return (clock_->now() - start_).count();
}

ThreadResult LoadLoop::run(const Clock& clock, TimePoint start, const std::atomic<bool>& stop,
                           LiveCounters& live) {
  clock_ = &clock;
  start_ = start;
  // The kernel may let a sleep last 50 µs longer to save power; we want the time we asked for.
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  STATOR_ASSERT(events_.opened(), "descriptors are counted before a run");
  while (prepared_.size() < kPreparedMax && prepared_bytes_ < kPreparedBytesMax && elapsed() < 0) {
    const size_t before = prepared_.size();
    prepare_one();
    if (prepared_.size() == before) {
      break;
    }
  }
  run_loop(stop, live);
  return std::move(result_);
}

void LoadLoop::run_loop(const std::atomic<bool>& stop, LiveCounters& live) {
  const ThreadTimes before = read_thread_times();
  const int64_t begin = elapsed();
  int64_t busy = 0;
  for (;;) {
    const int64_t woke = elapsed();
    if (stop.load(std::memory_order_relaxed)) {
      cut_off(Outcome::kUnfinished);
      break;
    }
    launch_due();
    expire(woke);
    if (over(woke)) {
      cut_off(Outcome::kUnfinished);
      break;
    }
    if (dispatcher_.done()) {
      break;
    }
    const int64_t turn = elapsed() - woke + handled_ns_;
    busy += turn;
    result_.client.turns.add(turn);
    publish(live, busy);
    wait_and_handle();
  }
  publish(live, busy);
  const auto wall = static_cast<double>(std::max<int64_t>(1, elapsed() - begin));
  result_.client.busy_share = static_cast<double>(busy) / wall;
  const ThreadTimes after = read_thread_times();
  const auto starved = static_cast<double>(after.starved_ns - before.starved_ns);
  const uint64_t turns = std::max<uint64_t>(1, result_.client.turns.count());
  result_.client.starved_share = starved / wall;
  result_.client.wake_delay_ms = starved * 1e-6 / static_cast<double>(turns);
  const double ran_s = static_cast<double>(after.ran_ns - before.ran_ns) * 1e-9;
  result_.client.waiting_cpu_s = std::min(ran_s, static_cast<double>(awake_ns_) * 1e-9);
  result_.client.cpu_s = ran_s - result_.client.waiting_cpu_s;
  result_.client.held_back = dispatcher_.held_back();
}

void LoadLoop::publish(LiveCounters& live, int64_t busy) {
  const auto put = [](std::atomic<uint64_t>& field, uint64_t value) {
    field.store(value, std::memory_order_relaxed);
  };
  put(live.sent, sent_);
  put(live.answered, answered_);
  put(live.failed, failed_);
  put(live.chunks, chunks_);
  put(live.in_flight, dispatcher_.in_flight());
  put(live.backlog, dispatcher_.backlog());
  put(live.latency_ns, latency_ns_);
  put(live.first_ns, first_ns_);
  put(live.firsts, firsts_);
  put(live.busy_ns, static_cast<uint64_t>(busy));
}

/// The run has a duration and answers have had their time after it, or the records are full.
bool LoadLoop::over(int64_t now) {
  if (result_.records.size() >= options_.records_max) {
    result_.log_full = true;
    return true;
  }
  if (options_.failures_in_row_max > 0 && failures_in_row_ >= options_.failures_in_row_max) {
    result_.gave_up = true;
    return true;
  }
  return options_.dispatch.duration > Duration{} &&
         now >= (options_.dispatch.duration + options_.drain_timeout).count();
}

/// Sends what is due. A connection is opened only if nothing was sent since the last look at the
/// sockets (L4).
void LoadLoop::launch_due() {
  for (int i = 0; i < kLaunchesPerLook; ++i) {
    if (idle_.empty() && sent_ != sent_at_look_) {
      break;
    }
    const auto next = dispatcher_.take(Duration(elapsed()));
    if (!next) {
      break;
    }
    if (next->dropped) {
      record_dropped(*next);
    } else {
      launch(*next);
    }
  }
  const auto due = dispatcher_.next_due();
  due_at_ = due ? due->count() : INT64_MAX;
}

void LoadLoop::record_dropped(const Launch& launch) {
  Record record;
  record.due = record.sendable = launch.due.count();
  record.outcome = Outcome::kDropped;
  result_.records.add(record);
  result_.count_error("not sent: --backlog-max was reached or the run ended");
  ++failed_;
}

void LoadLoop::launch(const Launch& launch) {
  Connection& connection = *take_connection();
  connection.session = launch.session;
  connection.turn = launch.turn;
  connection.retried = false;
  connection.record = {};
  connection.record.due = launch.due.count();
  connection.record.sendable = launch.sendable.count();
  connection.record.input_tokens = workload_.turn(launch.session, launch.turn).input_tokens;
  connection.last_chunk = 0;
  take_prepared(launch, connection.request);
  ++sent_;
  // Never 0, which means "not sent".
  connection.record.sent = std::max<int64_t>(1, elapsed());
  add_to(List::kTimeout, connection);
  const uint64_t draw = mix64(mix64(options_.seed + launch.session) ^ launch.turn);
  if (options_.cancel_share > 0 &&
      static_cast<double>(draw >> 11) * 0x1p-53 < options_.cancel_share) {
    add_to(List::kCancel, connection);
  }
  begin(connection);
}

void LoadLoop::take_prepared(const Launch& launch, std::string& request) {
  while (launch.turn == 0 && !prepared_.empty() && prepared_.front().session <= launch.session) {
    Prepared next = std::move(prepared_.front());
    prepared_.pop_front();
    prepared_bytes_ -= next.request.size();
    if (next.session == launch.session) {
      request.swap(next.request);
      return;
    }
  }
  const auto history = histories_.find(launch.session);
  builder_.build(launch.session, launch.turn,
                 history == histories_.end() ? std::string_view() : history->second, request);
}

void LoadLoop::prepare_one() {
  prepare_next_ = std::max(prepare_next_, dispatcher_.next_session());
  if (prepared_.size() >= kPreparedMax || prepared_bytes_ >= kPreparedBytesMax ||
      (workload_.sessions() != 0 && prepare_next_ >= workload_.sessions())) {
    return;
  }
  Prepared& next = prepared_.emplace_back();
  next.session = prepare_next_;
  builder_.build(next.session, 0, {}, next.request);
  prepared_bytes_ += next.request.size();
  prepare_next_ += options_.dispatch.shares;
}

LoadLoop::Connection* LoadLoop::take_connection() {
  if (!idle_.empty()) {  // the one used last: the others may time out at the server
    Connection* connection = idle_.back();
    idle_.pop_back();
    return connection;
  }
  if (!closed_.empty()) {
    Connection* connection = closed_.back();
    closed_.pop_back();
    return connection;
  }
  auto& connection = connections_.emplace_back(std::make_unique<Connection>(*this));
  return connection.get();
}

/// Sends the request of a connection that has just got one, connecting first if need be.
void LoadLoop::begin(Connection& connection) {
  connection.request_sent = 0;
  connection.reader.reset();
  connection.answer.clear();
  if (connection.turn + 1 < workload_.turns(connection.session) && workload_.keeps_history()) {
    connection.reader.capture(&connection.answer, kHistoryBytesMax);
  }
  if (connection.wire.open()) {
    connection.state = Connection::State::kBusy;
    send_rest(connection);
    return;
  }
  connection.reused = false;
  ++result_.client.connections;
  if (!connect(connection)) {
    finish(connection, Outcome::kNoConnection, "cannot connect: " + error_name(errno));
    return;
  }
  connection.state = Connection::State::kConnecting;
  watch(connection, Wants::kBoth);
}

bool LoadLoop::connect(Connection& connection) {
  // Few connections look like any client's; many choose their ports themselves.
  if (connections_.size() > kManyConnections) {
    for (int i = 0; i < kPortTries; ++i) {
      if (connection.wire.connect(address_, tls_, local_ports_.next())) {
        return true;
      }
      if (errno != EADDRINUSE && errno != EADDRNOTAVAIL) {
        return false;
      }
    }
  }
  return connection.wire.connect(address_, tls_, 0);
}

void LoadLoop::watch(Connection& connection, Wants wants) {
  const net::EventLoop::Interest interest{.read = true, .write = wants == Wants::kBoth};
  if (connection.key != net::EventLoop::kNoKey) {
    events_.change(connection.key, connection.wire.fd(), interest);
  } else if (const auto key = events_.add(connection.wire.fd(), interest, connection)) {
    connection.key = *key;
  }
  connection.watched = wants;
}

void LoadLoop::send_rest(Connection& connection) {
  const std::string_view request = connection.request;
  while (connection.request_sent < request.size()) {
    const auto written = connection.wire.write(request.substr(connection.request_sent));
    if (written.state == detail::WireState::kFailed) {
      const std::string why = connection.wire.failure();
      on_closed(connection, why.empty() ? "the connection broke while sending" : why);
      return;
    }
    if (written.state != detail::WireState::kMoved) {
      const Wants wanted =
          written.state == detail::WireState::kWantWrite ? Wants::kBoth : Wants::kRead;
      if (connection.watched != wanted) {
        watch(connection, wanted);
      }
      return;
    }
    connection.request_sent += written.bytes;
  }
  if (connection.watched != Wants::kRead) {
    watch(connection, Wants::kRead);
  }
}

void LoadLoop::on_event(Connection& connection, net::Ready ready) {
  if (connection.state == Connection::State::kConnecting) {
    on_connected(connection);
    return;
  }
  const bool sending = connection.state == Connection::State::kBusy &&
                       connection.request_sent < connection.request.size();
  if (sending) {
    send_rest(connection);  // TLS may have waited for bytes from the peer
  }
  if ((ready.readable || ready.broken) && connection.wire.open()) {
    on_readable(connection);
  }
}

void LoadLoop::on_connected(Connection& connection) {
  const int error = connection.wire.connect_error();
  if (error != 0) {
    finish(connection, Outcome::kNoConnection, "cannot connect: " + error_name(error));
    return;
  }
  connection.state = Connection::State::kBusy;
  send_rest(connection);
}

void LoadLoop::on_readable(Connection& connection) {
  // Plain sockets are read once per event: one that has more is reported again.
  for (;;) {
    const net::EventLoop::Key key = connection.key;
    const auto got = connection.wire.read(buffer_);
    if (got.state == detail::WireState::kMoved) {
      on_bytes(connection, {buffer_.data(), got.bytes});
      if (tls_ == nullptr || !connection.wire.open() || key != connection.key) {
        return;
      }
      continue;
    }
    if (got.state == detail::WireState::kWantRead || got.state == detail::WireState::kWantWrite) {
      return;
    }
    on_closed(connection, connection.wire.failure());
    return;
  }
}

void LoadLoop::on_bytes(Connection& connection, std::string_view bytes) {
  if (connection.state != Connection::State::kBusy) {
    on_closed(connection, "bytes without a request");
    return;
  }
  const uint32_t before = connection.reader.counts().chunks;
  const ResponseReader::State state = connection.reader.feed(bytes);
  const uint32_t chunks = connection.reader.counts().chunks - before;
  if (chunks > 0 && connection.reader.is_stream()) {
    note_chunks(connection, chunks, elapsed());
  }
  if (state != ResponseReader::State::kMore) {
    finish_answer(connection, state);
  }
}

/// Chunks that came in one piece came at one time: the gaps between them are 0.
void LoadLoop::note_chunks(Connection& connection, uint32_t chunks, int64_t now) {
  Record& record = connection.record;
  chunks_ += chunks;
  record.chunks += chunks;
  uint32_t simultaneous = chunks - 1;
  if (record.first == 0) {
    record.first = now;
    first_ns_ += static_cast<uint64_t>(now - record.sent);
    ++firsts_;
    if (simultaneous > 0) {
      record.second = now;
    }
  } else {
    if (record.second == 0) {
      record.second = now;
    }
    result_.gaps.add(record.sent, now - connection.last_chunk);
  }
  if (simultaneous > 0) {
    result_.gaps.add(record.sent, 0, simultaneous);
  }
  connection.last_chunk = record.last = now;
}

void LoadLoop::on_closed(Connection& connection, const std::string& why) {
  if (connection.state == Connection::State::kIdle) {
    std::erase(idle_, &connection);
    connection.close();
    connection.state = Connection::State::kClosed;
    closed_.push_back(&connection);
    return;
  }
  if (connection.state == Connection::State::kBusy && connection.reader.untouched() &&
      retry(connection)) {
    return;
  }
  const ResponseReader::State state = connection.reader.on_close();
  connection.close();
  if (state == ResponseReader::State::kDone) {
    finish_answer(connection, state);
  } else {
    finish(connection, Outcome::kBroken,
           why.empty() ? std::string(connection.reader.broken_text()) : why);
  }
}

/// A server may close an idle connection just when a request is sent on it: that request was not
/// taken and is sent again, once, with its first start.
bool LoadLoop::retry(Connection& connection) {
  if (!connection.reused || connection.retried) {
    return false;
  }
  connection.retried = true;
  ++result_.client.reconnects;
  connection.close();
  begin(connection);
  return true;
}

void LoadLoop::finish_answer(Connection& connection, ResponseReader::State state) {
  const ResponseReader& reader = connection.reader;
  const AnswerCounts& counts = reader.counts();
  Record& record = connection.record;
  const int64_t now = elapsed();
  record.status = static_cast<uint16_t>(reader.status());
  record.streamed = reader.is_stream();
  if (reader.must_close() || state == ResponseReader::State::kBroken) {
    connection.close();
  }
  if (state == ResponseReader::State::kBroken) {
    finish(connection, Outcome::kBroken, std::string(reader.broken_text()));
    return;
  }
  if (record.status != 200) {
    std::string text = fmt::format("HTTP {}: {}", record.status, reader.error_text());
    if (record.status == 400 && text.find("stream_options") != std::string::npos) {
      text += " (--no-usage leaves stream_options out)";
    }
    finish(connection, Outcome::kHttpError, text);
    return;
  }
  if (counts.failed) {
    finish(connection, Outcome::kStreamError,
           (reader.is_stream() ? "in the stream: " : "HTTP 200, but no answer: ") +
               reader.error_text());
    return;
  }
  if (record.last == 0) {
    record.last = now;  // no stream, or one without text
  }
  if (!record.streamed) {
    record.chunks = counts.chunks;
  }
  record.counted_by_server = counts.has_usage;
  record.output_tokens = counts.has_usage     ? static_cast<uint32_t>(counts.completion_tokens)
                         : reader.is_stream() ? counts.chunks
                                              : 0;
  if (counts.has_usage && counts.prompt_tokens > 0) {
    record.input_tokens = static_cast<uint32_t>(counts.prompt_tokens);
  }
  latency_ns_ += static_cast<uint64_t>(record.last - record.sent);
  finish(connection, Outcome::kOk, {});
}

/// Ends the request of a connection: its record, its place in the dispatcher, its socket.
void LoadLoop::finish(Connection& connection, Outcome outcome, const std::string& error) {
  remove_from(List::kTimeout, connection);
  remove_from(List::kCancel, connection);
  connection.record.outcome = outcome;
  result_.records.add(connection.record);
  auto turn_outcome =
      outcome == Outcome::kOk ? Dispatcher::Outcome::kAnswered : Dispatcher::Outcome::kFailed;
  failures_in_row_ = outcome == Outcome::kOk ? 0 : failures_in_row_ + 1;
  if (outcome == Outcome::kOk) {
    ++answered_;
  } else {
    failed_ += outcome == Outcome::kCancelled ? 0 : 1;
    if (!error.empty()) {
      result_.count_error(error);
    }
  }
  keep_history(connection, turn_outcome);
  const bool keep = outcome == Outcome::kOk || outcome == Outcome::kHttpError;
  if (!keep || !options_.reuse_connections) {
    connection.close();
  }
  if (connection.request.capacity() > kKeptRequestBytes) {
    std::string().swap(connection.request);
  }
  if (connection.wire.open()) {
    connection.state = Connection::State::kIdle;
    connection.reused = true;
    idle_.push_back(&connection);
  } else {
    connection.state = Connection::State::kClosed;
    closed_.push_back(&connection);
  }
  const bool lost = outcome == Outcome::kNoConnection || outcome == Outcome::kBroken;
  dispatcher_.finished(connection.session, connection.turn, turn_outcome,
                       Duration(elapsed()) + (lost ? kAfterLostConnection : Duration{}));
}

void LoadLoop::keep_history(Connection& connection, Dispatcher::Outcome& outcome) {
  const bool goes_on = outcome == Dispatcher::Outcome::kAnswered && workload_.keeps_history() &&
                       connection.turn + 1 < workload_.turns(connection.session);
  if (!goes_on) {
    forget_history(connection.session);
    return;
  }
  std::string& history = histories_[connection.session];
  const size_t before = history.size();
  builder_.add_to_history(connection.session, connection.turn, connection.answer, history);
  histories_bytes_ += history.size() - before;
  if (history.size() > kHistoryBytesMax || histories_bytes_ > kHistoriesBytesMax) {
    result_.count_error(
        "a session ended early: its conversation is longer than 4 MiB, or all "
        "together than 1 GiB");
    forget_history(connection.session);
    outcome = Dispatcher::Outcome::kFailed;
  }
}

void LoadLoop::forget_history(uint64_t session) {
  const auto found = histories_.find(session);
  if (found != histories_.end()) {
    histories_bytes_ -= found->second.size();
    histories_.erase(found);
  }
}

void LoadLoop::expire(int64_t now) {
  for (Connection*& head = deadlines_[static_cast<size_t>(List::kTimeout)].head;
       head != nullptr && head->links[0].deadline <= now;) {
    Connection& connection = *head;
    const bool connected = connection.state == Connection::State::kBusy;
    connection.close();
    finish(connection, Outcome::kTimeout,
           connected ? "no complete answer within --request-timeout"
                     : "no connection within --request-timeout");
  }
  for (Connection*& head = deadlines_[static_cast<size_t>(List::kCancel)].head;
       head != nullptr && head->links[1].deadline <= now;) {
    Connection& connection = *head;
    connection.close();
    finish(connection, Outcome::kCancelled, {});
  }
}

/// Ends everything that is not finished.
void LoadLoop::cut_off(Outcome outcome) {
  dispatcher_.stop();
  while (const auto waiting = dispatcher_.take(Duration(elapsed()))) {
    record_dropped(*waiting);
  }
  while (deadlines_[0].head != nullptr) {
    Connection& connection = *deadlines_[0].head;
    connection.close();
    finish(connection, outcome, {});
  }
}

void LoadLoop::add_to(List list, Connection& connection) {
  auto& link = connection.links[static_cast<size_t>(list)];
  DeadlineList& all = deadlines_[static_cast<size_t>(list)];
  const Duration after = list == List::kTimeout ? options_.request_timeout : options_.cancel_after;
  link = {.before = all.tail,
          .after = nullptr,
          .deadline = connection.record.sent + after.count(),
          .linked = true};
  (all.tail == nullptr ? all.head : all.tail->links[static_cast<size_t>(list)].after) = &connection;
  all.tail = &connection;
}

void LoadLoop::remove_from(List list, Connection& connection) {
  const auto which = static_cast<size_t>(list);
  auto& link = connection.links[which];
  if (!link.linked) {
    return;
  }
  DeadlineList& all = deadlines_[which];
  (link.before == nullptr ? all.head : link.before->links[which].after) = link.after;
  (link.after == nullptr ? all.tail : link.after->links[which].before) = link.before;
  link.linked = false;
}

/// How long to wait for events: until something is due, at most kWaitMaxNs.
Duration LoadLoop::wait_time(int64_t now) {
  int64_t until = now + kWaitMaxNs;
  if (const auto due = dispatcher_.next_due()) {
    until = std::min(until, due->count());
  }
  for (size_t which = 0; which < 2; ++which) {
    if (deadlines_[which].head != nullptr) {
      until = std::min(until, deadlines_[which].head->links[which].deadline);
    }
  }
  return Duration(std::max<int64_t>(0, until - now));
}

/// Waits for events at most so long. The last kAwakeNs before a launch are spent awake: a sleeping
/// thread is woken some 30 µs late, more where the kernel lets the core sleep as well.
size_t LoadLoop::wait_for_events(Duration wait) {
  const int64_t begin = elapsed();
  const int64_t until = begin + wait.count();
  const int64_t awake_ns = until >= due_at_ ? std::min(kAwakeNs, wait.count()) : 0;
  const int64_t asleep_ns = wait.count() - awake_ns;
  size_t count = events_.wait(Duration(asleep_ns));
  if (awake_ns == 0 || count != 0) {
    return count;
  }
  const int64_t woke = elapsed();
  int64_t now = woke;
  while (count == 0 && now < until) {
    count = events_.wait(Duration::zero());
    now = elapsed();
  }
  awake_ns_ += now - woke;
  return count;
}

void LoadLoop::wait_and_handle() {
  int64_t now = elapsed();
  Duration wait = wait_time(now);
  // Slack is used to write a request ahead; then only a look at what has happened.
  const bool can_prepare = prepared_.size() < kPreparedMax && prepared_bytes_ < kPreparedBytesMax;
  int64_t prepared_ns = 0;
  if (can_prepare && wait.count() > kPrepareSlackNs) {
    const size_t before = prepared_.size();
    prepare_one();
    const int64_t after = elapsed();
    prepared_ns = after - now;
    wait = prepared_.size() > before ? Duration{} : wait;
  }
  sent_at_look_ = sent_;
  wait_for_events(wait);
  const int64_t woke = elapsed();
  if (woke >= due_at_ && !idle_.empty()) {
    launch_due();  // sending comes before reading: an answer waits in its socket, a schedule does
                   // not
  }
  for (size_t i = 0; events_.handle_next(); ++i) {
    if (i % kEventsPerLook == kEventsPerLook - 1) {
      launch_due();
      sent_at_look_ = sent_;
    } else if (!idle_.empty() && elapsed() >= due_at_) {
      launch_due();
    }
  }
  handled_ns_ = elapsed() - woke + prepared_ns;
}

}  // namespace stator::loadgen
