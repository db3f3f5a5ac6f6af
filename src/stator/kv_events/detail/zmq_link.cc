// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/detail/zmq_link.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <utility>

#include "stator/core/log.h"

namespace stator::kv_events::detail {
namespace {

constexpr size_t kSequenceBytes = 8;
constexpr uint64_t kEndOfReplay = std::numeric_limits<uint64_t>::max();

struct Numbered {
  uint64_t sequence;
  std::string payload;
};

/// Read from the end: a topic, and on replays an empty frame, may or may not come first.
std::optional<Numbered> parse(const std::vector<zmq::message_t>& frames) {
  if (frames.size() < 2 || frames[frames.size() - 2].size() != kSequenceBytes) {
    return std::nullopt;
  }
  Numbered message{0, frames.back().to_string()};
  for (const char byte : frames[frames.size() - 2].to_string_view()) {
    message.sequence = message.sequence << 8 | static_cast<uint8_t>(byte);
  }
  return message;
}

/// One message with all its frames; false: none is there.
bool receive(zmq::socket_t& socket, std::vector<zmq::message_t>& frames) {
  frames.clear();
  do {
    zmq::message_t frame;
    if (!socket.recv(frame, zmq::recv_flags::dontwait)) {
      return false;
    }
    frames.push_back(std::move(frame));
  } while (frames.back().more());
  return true;
}

/// A half-open connection is found within seconds; messages that are too large end it.
void set_limits(zmq::socket_t& socket) {
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::rcvhwm, ZmqSources::kReceiveMax);
  socket.set(zmq::sockopt::maxmsgsize, ZmqSources::kMessageBytesMax);
  socket.set(zmq::sockopt::reconnect_ivl, 100);
  socket.set(zmq::sockopt::reconnect_ivl_max, 2'000);
  socket.set(zmq::sockopt::heartbeat_ivl, 5'000);
  socket.set(zmq::sockopt::heartbeat_timeout, 15'000);
}

}  // namespace

ZmqMetrics::ZmqMetrics(Metrics& metrics)
    : messages(metrics.counter("stator_events_zmq_messages_total",
                               "batches received from engines, replayed ones included")),
      malformed(metrics.counter("stator_events_zmq_malformed_total",
                                "messages from engines that have no number or no payload")),
      gaps(metrics.counter("stator_events_zmq_gaps_total", "times that batches were missing")),
      replays(
          metrics.counter("stator_events_zmq_replays_total", "replays that ended without loss")),
      restarts(metrics.counter("stator_events_zmq_restarts_total",
                               "times that an engine turned out to be another one")),
      resets(metrics.counter("stator_events_zmq_resets_total",
                             "times that all that was known of an engine's cache became void")),
      replay_failures(metrics.counter("stator_events_zmq_replay_failures_total",
                                      "replays given up: the endpoint does not answer")),
      waiting(metrics.gauge("stator_events_zmq_waiting",
                            "batches held back until a replay ends, at most 4096 a rank")) {}

ZmqLink::ZmqLink(zmq::context_t& context, const ZmqSourceConfig& config, uint32_t rank,
                 EngineBatchListener& listener, ZmqMetrics& metrics)
    : context_(context),
      config_(config),
      rank_(rank),
      listener_(listener),
      metrics_(metrics),
      cursor_(!config.replay_endpoint.empty()) {}

ZmqLink::~ZmqLink() {
  metrics_.waiting.add(-static_cast<double>(waiting_counted_));
  if (live_.handle() != nullptr) {
    zmq_socket_monitor(live_.handle(), nullptr, 0);
  }
}

void ZmqLink::open(const std::string& endpoint, const std::string& replay_endpoint) {
  replay_endpoint_ = replay_endpoint;
  live_ = zmq::socket_t(context_, zmq::socket_type::sub);
  set_limits(live_);
  live_.set(zmq::sockopt::subscribe, config_.topic);
  const std::string monitor = fmt::format("inproc://monitor-{}", static_cast<void*>(this));
  if (zmq_socket_monitor(live_.handle(), monitor.c_str(), ZMQ_EVENT_HANDSHAKE_SUCCEEDED) != 0) {
    throw zmq::error_t();
  }
  monitor_ = zmq::socket_t(context_, zmq::socket_type::pair);
  monitor_.set(zmq::sockopt::linger, 0);
  monitor_.connect(monitor);
  if (endpoint.find('*') != std::string::npos) {
    live_.bind(endpoint);
  } else {
    live_.connect(endpoint);
  }
}

void ZmqLink::add_poll_items(std::vector<zmq::pollitem_t>& items) {
  items.push_back({monitor_.handle(), 0, ZMQ_POLLIN, 0});
  items.push_back({live_.handle(), 0, ZMQ_POLLIN, 0});
  if (replay_.handle() != nullptr) {
    items.push_back({replay_.handle(), 0, ZMQ_POLLIN, 0});
  }
}

void ZmqLink::on_ready(TimePoint now) {
  read_monitor(now);
  if (replay_.handle() != nullptr) {
    read_replay(now);
  }
  read_live(now);
  count();
}

void ZmqLink::read_monitor(TimePoint now) {
  std::vector<zmq::message_t> frames;
  while (receive(monitor_, frames)) {
    uint16_t event = 0;
    if (frames.front().size() >= sizeof(event)) {
      std::memcpy(&event, frames.front().data(), sizeof(event));
    }
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      apply(cursor_.on_connected(), now);
    }
  }
}

void ZmqLink::read_live(TimePoint now) {
  std::vector<zmq::message_t> frames;
  for (int i = 0; i < kMessagesPerTurn && receive(live_, frames); ++i) {
    auto message = parse(frames);
    if (!message) {
      metrics_.malformed.add();
      continue;
    }
    metrics_.messages.add();
    if (deadline_ && !cursor_.replaying()) {
      deadline_ = now + config_.quiet_check;
    }
    apply(cursor_.on_live(message->sequence, std::move(message->payload)), now);
  }
}

void ZmqLink::read_replay(TimePoint now) {
  std::vector<zmq::message_t> frames;
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    // A step may end this replay, or begin another one on a new socket.
    if (replay_.handle() == nullptr || !receive(replay_, frames)) {
      return;
    }
    auto message = parse(frames);
    const bool is_end = message && (message->sequence == kEndOfReplay || message->payload.empty());
    if (!message) {
      metrics_.malformed.add();
    } else if (is_end) {
      end_replay();
      deadline_ = now + config_.quiet_check;
      apply(cursor_.on_replay_end(), now);
    } else {
      metrics_.messages.add();
      deadline_ = now + config_.replay_timeout;
      apply(cursor_.on_replay(message->sequence, std::move(message->payload)), now);
    }
  }
}

void ZmqLink::apply(ReplayCursor::Steps steps, TimePoint now) {
  for (ReplayCursor::Step& step : steps) {
    if (const auto* deliver = std::get_if<ReplayCursor::Deliver>(&step)) {
      listener_.on_batch(rank_, deliver->payload);
    } else if (const auto* ask = std::get_if<ReplayCursor::AskReplay>(&step)) {
      replay_from_ = ask->from;
      attempt_ = 0;
      send_replay_request(now);
    } else {
      listener_.on_reset(rank_);
    }
  }
}

void ZmqLink::send_replay_request(TimePoint now) {
  // A new socket each time: late answers to an earlier question cannot be mistaken for this one's.
  end_replay();
  deadline_ = now + config_.replay_timeout;  // first: it also covers a socket that cannot be made
  replay_ = zmq::socket_t(context_, zmq::socket_type::dealer);
  set_limits(replay_);
  replay_.connect(replay_endpoint_);
  std::string from(kSequenceBytes, '\0');
  for (size_t i = 0; i < kSequenceBytes; ++i) {
    from[i] = static_cast<char>(replay_from_ >> (8 * (kSequenceBytes - 1 - i)) & 0xff);
  }
  replay_.send(zmq::message_t(), zmq::send_flags::sndmore);
  replay_.send(zmq::buffer(from), zmq::send_flags::dontwait);
}

void ZmqLink::end_replay() {
  replay_ = zmq::socket_t();
  deadline_.reset();
}

void ZmqLink::on_time(TimePoint now) {
  if (!deadline_ || now < *deadline_) {
    return;
  }
  if (!cursor_.replaying()) {
    apply(cursor_.on_quiet(), now);
    return;
  }
  if (++attempt_ < config_.replay_attempts) {
    send_replay_request(now);
    return;
  }
  end_replay();  // and no quiet checks until it is connected anew
  metrics_.replay_failures.add();
  log::warn("events", "an engine's replay endpoint does not answer; its cache is known in part",
            {{"endpoint", replay_endpoint_}, {"rank", rank_}});
  apply(cursor_.on_replay_failed(), now);
  count();
}

void ZmqLink::count() {
  const ReplayCursor::Stats& stats = cursor_.stats();
  metrics_.gaps.add(stats.gaps - counted_.gaps);
  metrics_.replays.add(stats.replays - counted_.replays);
  metrics_.restarts.add(stats.restarts - counted_.restarts);
  metrics_.resets.add(stats.resets - counted_.resets);
  counted_ = stats;
  metrics_.waiting.add(static_cast<double>(cursor_.waiting()) -
                       static_cast<double>(waiting_counted_));
  waiting_counted_ = cursor_.waiting();
}

}  // namespace stator::kv_events::detail
