// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/event_publisher_service.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>
#include <zmq.hpp>

namespace stator::fake_engine {
namespace {

constexpr std::string_view kWakeEndpoint = "inproc://wake";
constexpr int kHighWater = 100'000;  // as the real engines set it

std::string big_endian(uint64_t value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(value >> static_cast<unsigned>(shift)));
  }
  return bytes;
}

uint64_t read_big_endian(const zmq::message_t& frame) {
  uint64_t value = 0;
  for (const char byte : frame.to_string_view()) {
    value = value << 8U | static_cast<unsigned char>(byte);
  }
  return value;
}

void send(zmq::socket_t& socket, std::string_view bytes, bool more) {
  socket.send(zmq::buffer(bytes.data(), bytes.size()),
              more ? zmq::send_flags::sndmore : zmq::send_flags::none);
}

}  // namespace

std::string endpoint_of_rank(const std::string& endpoint, uint32_t rank) {
  const size_t colon = endpoint.rfind(':');
  uint32_t port = 0;
  if (!endpoint.starts_with("tcp://") || colon == std::string::npos || colon < 6) {
    return endpoint.starts_with("inproc://") && rank > 0 ? fmt::format("{}_dp{}", endpoint, rank)
                                                         : endpoint;
  }
  const char* begin = endpoint.data() + colon + 1;
  const char* end = endpoint.data() + endpoint.size();
  const auto [stop, error] = std::from_chars(begin, end, port);
  if (error != std::errc() || stop != end || port == 0) {
    return endpoint;
  }
  return endpoint.substr(0, colon + 1) + std::to_string(port + rank);
}

bool is_bound_endpoint(std::string_view endpoint) {
  return endpoint.contains('*') || endpoint.contains("::") || endpoint.starts_with("ipc://") ||
         endpoint.starts_with("inproc://") || endpoint.ends_with(":0");
}

struct EventPublisher::Sockets {
  zmq::context_t context{1};
  zmq::socket_t events{context, zmq::socket_type::pub};
  zmq::socket_t replay{context, zmq::socket_type::router};
  zmq::socket_t wake_out{context, zmq::socket_type::push};  // under the publisher's mutex
  zmq::socket_t wake_in{context, zmq::socket_type::pull};
  std::string endpoint;
  std::string replay_endpoint;
};

EventPublisher::EventPublisher(const EventConfig& config, Release release,
                               std::unique_ptr<Sockets> sockets, Metrics& metrics)
    : config_(config),
      release_(release),
      sockets_(std::move(sockets)),
      dropped_(metrics.counter("stator_fake_event_batches_dropped_total",
                               "KV event batches dropped because the queue was full")),
      replays_dropped_(metrics.counter("stator_fake_event_replays_dropped_total",
                                       "replay requests ignored because too many waited")),
      thread_("kv-events", [this] { run(); }) {}

Result<std::unique_ptr<EventPublisher>> EventPublisher::create(const EventConfig& config,
                                                               uint32_t rank, Release release,
                                                               Metrics& metrics) {
  std::string wanted = endpoint_of_rank(config.endpoint, rank);
  try {
    auto sockets = std::make_unique<Sockets>();
    for (auto* socket : {&sockets->events, &sockets->replay, &sockets->wake_out}) {
      socket->set(zmq::sockopt::linger, 0);
      socket->set(zmq::sockopt::sndhwm, kHighWater);
    }
    if (is_bound_endpoint(wanted)) {
      sockets->events.bind(wanted);
      sockets->endpoint = sockets->events.get(zmq::sockopt::last_endpoint);
    } else {
      sockets->events.connect(wanted);
      sockets->endpoint = wanted;
    }
    if (!config.replay_endpoint.empty()) {
      wanted = endpoint_of_rank(config.replay_endpoint, rank);
      sockets->replay.bind(wanted);
      sockets->replay_endpoint = sockets->replay.get(zmq::sockopt::last_endpoint);
    }
    sockets->wake_in.bind(std::string(kWakeEndpoint));
    sockets->wake_out.connect(std::string(kWakeEndpoint));
    return std::unique_ptr<EventPublisher>(
        new EventPublisher(config, release, std::move(sockets), metrics));
  } catch (const zmq::error_t& error) {
    return Error(Code::kInvalidArgument,
                 fmt::format("KV events: endpoint '{}': {}", wanted, error.what()));
  }
}

EventPublisher::~EventPublisher() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    wake();
  }
  thread_.join();
}

const std::string& EventPublisher::endpoint() const {
  return sockets_->endpoint;
}

const std::string& EventPublisher::replay_endpoint() const {
  return sockets_->replay_endpoint;
}

uint64_t EventPublisher::published() const {
  const MutexLock lock(mutex_);
  return next_sequence_;
}

void EventPublisher::wake() {
  // One byte is enough however many batches wait; a full pipe means that the thread is awake.
  sockets_->wake_out.send(zmq::str_buffer("w"), zmq::send_flags::dontwait);
}

void EventPublisher::publish(std::string payload, PendingFaults::Batch fate) {
  const MutexLock lock(mutex_);
  Numbered batch{.sequence = next_sequence_++, .payload = std::move(payload)};
  if (fate == PendingFaults::Batch::kLose) {
    return;
  }
  kept_.push_back(batch);
  while (kept_.size() > config_.buffer_steps) {
    kept_.pop_front();
  }
  if (fate == PendingFaults::Batch::kDrop) {
    return;
  }
  if (queue_.size() >= config_.queue_max) {
    dropped_.add();
    return;
  }
  if (fate == PendingFaults::Batch::kHoldBack && !held_back_) {
    held_back_ = std::move(batch);
    return;
  }
  if (fate == PendingFaults::Batch::kDuplicate) {
    queue_.push_back(batch);
  }
  queue_.push_back(std::move(batch));
  if (held_back_) {
    queue_.push_back(*std::exchange(held_back_, std::nullopt));
  }
  wake();
}

void EventPublisher::restart_sequence() {
  const MutexLock lock(mutex_);
  next_sequence_ = 0;
  kept_.clear();
}

void EventPublisher::mute_replay(bool muted) {
  const MutexLock lock(mutex_);
  muted_ = muted;
}

void EventPublisher::delay_replay(Duration delay) {
  const MutexLock lock(mutex_);
  replay_delay_ = delay;
}

void EventPublisher::run() {
  while (send_waiting()) {
    zmq::pollitem_t items[] = {{sockets_->wake_in, 0, ZMQ_POLLIN, 0},
                               {sockets_->replay, 0, ZMQ_POLLIN, 0}};
    try {
      zmq::poll(items, 2, answer_due());
      zmq::message_t ignored;
      while (sockets_->wake_in.recv(ignored, zmq::recv_flags::dontwait)) {
      }
      if ((items[1].revents & ZMQ_POLLIN) != 0) {
        take_question();
      }
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR && error.num() != EHOSTUNREACH) {
        return;  // the context is gone
      }
    }
  }
}

bool EventPublisher::send_waiting() {
  std::deque<Numbered> batches;
  {
    const MutexLock lock(mutex_);
    if (stopping_) {
      return false;
    }
    batches.swap(queue_);
  }
  for (const Numbered& batch : batches) {
    send(sockets_->events, config_.topic, true);
    send(sockets_->events, big_endian(batch.sequence), true);
    send(sockets_->events, batch.payload, false);
  }
  return true;
}

void EventPublisher::take_question() {
  std::vector<zmq::message_t> frames;
  do {
    frames.emplace_back();
    if (!sockets_->replay.recv(frames.back(), zmq::recv_flags::dontwait)) {
      return;
    }
  } while (frames.back().more());
  const MutexLock lock(mutex_);
  // identity | empty | start: anything else is ignored, as the real engines do.
  if (muted_ || frames.size() != 3 || frames[2].size() != 8) {
    return;
  }
  if (questions_.size() >= kReplaysMax) {
    replays_dropped_.add();
    return;
  }
  questions_.push_back({.asker = frames[0].to_string(),
                        .start = read_big_endian(frames[2]),
                        .due = clock_.now() + replay_delay_});
}

/// Answers whose time has come, in the order of asking. Until the next one is due; below 0: none.
std::chrono::milliseconds EventPublisher::answer_due() {
  while (!questions_.empty()) {
    const Duration left = questions_.front().due - clock_.now();
    if (left > Duration::zero()) {
      return std::chrono::ceil<std::chrono::milliseconds>(left);
    }
    const Question question = std::move(questions_.front());
    questions_.pop_front();
    answer(question);
  }
  return std::chrono::milliseconds(-1);
}

void EventPublisher::answer(const Question& question) {
  std::vector<Numbered> answer;
  {
    const MutexLock lock(mutex_);
    for (const Numbered& batch : kept_) {
      if (batch.sequence >= question.start) {
        answer.push_back(batch);
      }
    }
  }
  answer.push_back({.sequence = UINT64_MAX, .payload = {}});
  for (const Numbered& batch : answer) {
    const bool end = batch.sequence == UINT64_MAX;
    send(sockets_->replay, question.asker, true);
    send(sockets_->replay, "", true);
    if (release_ == Release::kCurrent) {
      send(sockets_->replay, end ? std::string_view() : config_.topic, true);
    }
    send(sockets_->replay, big_endian(batch.sequence), true);
    send(sockets_->replay, batch.payload, false);
  }
}

}  // namespace stator::fake_engine
