// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/side_channel_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <zmq.hpp>

#include "stator/lab/fake_engine/msgpack_writer.h"

namespace stator::fake_engine {
namespace {

constexpr std::string_view kWakeEndpoint = "inproc://wake";
constexpr std::string_view kMetadataRequest = "get_meta_msg";
constexpr std::string_view kClaim = "claim";

char letter_of(ClaimOutcome outcome) {
  switch (outcome) {
    case ClaimOutcome::kFresh:
      return 'f';
    case ClaimOutcome::kStale:
      return 's';
    case ClaimOutcome::kRefused:
      break;
  }
  return 'r';
}

ClaimOutcome outcome_of(std::string_view reply) {
  if (reply == "f") {
    return ClaimOutcome::kFresh;
  }
  return reply == "s" ? ClaimOutcome::kStale : ClaimOutcome::kRefused;
}

/// The handshake's first frame: what a decode server compares before it connects.
std::string handshake_payload(const std::string& engine_id) {
  std::string metadata;
  MsgpackWriter inner(metadata);
  inner.map(4).text("engine_id").text(engine_id).text("agent_metadata").binary("stator-fake");
  inner.text("kv_caches_base_addr").array(0).text("device_id").unsigned_integer(0);
  std::string out;
  MsgpackWriter outer(out);
  outer.map(2).text("compatibility_hash").text("stator-fake");
  outer.text("agent_metadata_bytes").binary(metadata);
  return out;
}

uint16_t port_of(const std::string& endpoint) {
  uint16_t port = 0;
  const size_t colon = endpoint.rfind(':');
  std::from_chars(endpoint.data() + colon + 1, endpoint.data() + endpoint.size(), port);
  return port;
}

}  // namespace

struct SideChannel::Sockets {
  zmq::context_t context{1};
  zmq::socket_t server{context, zmq::socket_type::router};
  zmq::socket_t wake_out{context, zmq::socket_type::push};  // under the mutex
  zmq::socket_t wake_in{context, zmq::socket_type::pull};
};

struct SideChannel::Pending {
  zmq::socket_t socket;
  TimePoint deadline;
  std::function<void(ClaimAnswer)> done;
};

SideChannel::SideChannel(const HandoffConfig& config, std::string engine_id, AnswerClaim answer,
                         const Clock& clock, std::unique_ptr<Sockets> sockets)
    : config_(config),
      engine_id_(std::move(engine_id)),
      answer_(std::move(answer)),
      clock_(clock),
      sockets_(std::move(sockets)),
      port_(port_of(sockets_->server.get(zmq::sockopt::last_endpoint))),
      thread_("side-channel", [this] { run(); }) {}

Result<std::unique_ptr<SideChannel>> SideChannel::create(const HandoffConfig& config,
                                                         std::string engine_id, AnswerClaim answer,
                                                         const Clock& clock) {
  const std::string endpoint = fmt::format("tcp://{}:{}", config.host, config.port);
  try {
    auto sockets = std::make_unique<Sockets>();
    sockets->server.set(zmq::sockopt::linger, 0);
    sockets->wake_out.set(zmq::sockopt::linger, 0);
    sockets->server.bind(endpoint);
    sockets->wake_in.bind(std::string(kWakeEndpoint));
    sockets->wake_out.connect(std::string(kWakeEndpoint));
    return std::unique_ptr<SideChannel>(new SideChannel(
        config, std::move(engine_id), std::move(answer), clock, std::move(sockets)));
  } catch (const zmq::error_t& error) {
    return Error(Code::kInvalidArgument,
                 fmt::format("hand-off side channel '{}': {}", endpoint, error.what()));
  }
}

SideChannel::~SideChannel() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    sockets_->wake_out.send(zmq::str_buffer("w"), zmq::send_flags::dontwait);
  }
  thread_.join();
}

void SideChannel::claim(RemoteHandoff handoff, std::function<void(ClaimAnswer)> done) {
  const MutexLock lock(mutex_);
  wanted_.push_back({std::move(handoff), std::move(done)});
  sockets_->wake_out.send(zmq::str_buffer("w"), zmq::send_flags::dontwait);
}

void SideChannel::run() {
  while (start_claims()) {
    std::vector<zmq::pollitem_t> items{{sockets_->wake_in, 0, ZMQ_POLLIN, 0},
                                       {sockets_->server, 0, ZMQ_POLLIN, 0}};
    auto wait = std::chrono::milliseconds(-1);
    for (const auto& pending : pending_) {
      items.push_back({pending->socket, 0, ZMQ_POLLIN, 0});
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(pending->deadline - clock_.now());
      const auto at_least =
          std::max(left, std::chrono::milliseconds(0)) + std::chrono::milliseconds(1);
      wait = wait.count() < 0 ? at_least : std::min(wait, at_least);
    }
    try {
      zmq::poll(items, wait);
      zmq::message_t ignored;
      while (sockets_->wake_in.recv(ignored, zmq::recv_flags::dontwait)) {
      }
      if ((items[1].revents & ZMQ_POLLIN) != 0) {
        serve_one();
      }
      finish_claims();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR && error.num() != EHOSTUNREACH) {
        return;
      }
    }
  }
}

void SideChannel::serve_one() {
  std::vector<zmq::message_t> frames;
  do {
    frames.emplace_back();
    if (!sockets_->server.recv(frames.back(), zmq::recv_flags::dontwait)) {
      return;
    }
  } while (frames.back().more());
  if (frames.size() < 3) {
    return;
  }
  const auto reply = [&](std::string_view bytes, bool more) {
    sockets_->server.send(zmq::buffer(bytes.data(), bytes.size()),
                          more ? zmq::send_flags::sndmore : zmq::send_flags::none);
  };
  const std::string_view what = frames[2].to_string_view();
  std::string first;
  std::string second;
  if (frames.size() == 5 && what == kClaim) {
    first = std::string(1, letter_of(answer_(frames[3].to_string(), frames[4].to_string())));
  } else if (what.contains(kMetadataRequest)) {
    first = handshake_payload(engine_id_);
    MsgpackWriter(second).float64(
        std::chrono::duration<double>(clock_.now().time_since_epoch()).count());
  } else {
    return;
  }
  reply(frames[0].to_string_view(), true);
  reply("", true);
  reply(first, !second.empty());
  if (!second.empty()) {
    reply(second, false);
  }
}

bool SideChannel::start_claims() {
  std::vector<Wanted> wanted;
  {
    const MutexLock lock(mutex_);
    if (stopping_) {
      return false;
    }
    wanted.swap(wanted_);
  }
  for (Wanted& claim : wanted) {
    if (pending_.size() >= kClaimsMax) {
      claim.done({});
      continue;
    }
    try {
      auto pending = std::make_unique<Pending>();
      pending->socket = zmq::socket_t(sockets_->context, zmq::socket_type::dealer);
      pending->socket.set(zmq::sockopt::linger, 0);
      pending->socket.connect(fmt::format("tcp://{}:{}", claim.handoff.host, claim.handoff.port));
      for (const std::string_view frame :
           {std::string_view(), kClaim, std::string_view(claim.handoff.engine_id)}) {
        pending->socket.send(zmq::buffer(frame.data(), frame.size()), zmq::send_flags::sndmore);
      }
      pending->socket.send(zmq::buffer(claim.handoff.request_id), zmq::send_flags::none);
      pending->deadline = clock_.now() + config_.unreachable;
      pending->done = std::move(claim.done);
      pending_.push_back(std::move(pending));
    } catch (const zmq::error_t&) {
      claim.done({});  // an address that cannot be one
    }
  }
  return true;
}

void SideChannel::finish_claims() {
  std::deque<std::unique_ptr<Pending>> still;
  for (auto& pending : pending_) {
    zmq::message_t delimiter;
    zmq::message_t reply;
    if (pending->socket.recv(delimiter, zmq::recv_flags::dontwait) && delimiter.more() &&
        pending->socket.recv(reply, zmq::recv_flags::dontwait)) {
      pending->done({.reachable = true, .outcome = outcome_of(reply.to_string_view())});
    } else if (clock_.now() >= pending->deadline) {
      pending->done({});
    } else {
      still.push_back(std::move(pending));
    }
  }
  pending_.swap(still);
}

}  // namespace stator::fake_engine
