// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/handoff/port.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "stator/core/log.h"
#include "stator/core/random.h"
#include "stator/transfer/wire.h"

namespace stator::engine::handoff {
namespace {

using transfer::MemType;
using transfer::Outcome;

/// Of messages and copies: raised when what the two sides tell each other changes.
constexpr int kProtocol = 1;
constexpr Duration kSettle = std::chrono::milliseconds(1);

}  // namespace

Port::Port(Private /*key*/, PortOptions options, Clock& clock, Metrics& metrics)
    : options_(std::move(options)), clock_(clock), metrics_(metrics) {
  ability_ = {.role = options_.role,
              .kind = fmt::format("stator-{}/{}/{}", kProtocol, options_.engine_kind,
                                  storage::to_hex(options_.space)),
              .meeting_point = {},
              .runs_whole = true};
  garbled_ = metrics.counter("stator_engine_handoff_garbled_total",
                             "messages about hand-offs that could not be read",
                             {{"engine", options_.engine_name}});
}

Result<std::shared_ptr<Port>> Port::open(PortOptions options, Clock& clock, Metrics& metrics) {
  auto port = std::make_shared<Port>(Private(), std::move(options), clock, metrics);
  STATOR_CHECK(port->start());
  return port;
}

Status Port::start() {
  agent_ = std::make_unique<transfer::Agent>(
      fmt::format("stator-{}-{:016x}", options_.engine_name, Random::from_entropy().next()),
      transfer::AgentOptions{.news = [this] { wake(); }}, clock_, metrics_);
  const Outcome shm = agent_->create_backend("shm", {});
  const Outcome tcp = agent_->create_backend("tcp", {{"host", options_.listen_host}});
  if (shm != Outcome::kSuccess && tcp != Outcome::kSuccess) {
    return Error(Code::kUnavailable,
                 fmt::format("worker.role {}: neither shared memory nor TCP on worker.listen_host "
                             "{} can carry prompts",
                             to_string(options_.role), options_.listen_host));
  }
  std::span<std::byte> staging;
  if (options_.role == inference::WorkerRole::kPrefill && options_.block_bytes > 0) {
    staging = agent_->allocate(options_.staging_bytes);
    const transfer::Desc whole{.addr = reinterpret_cast<uint64_t>(staging.data()),
                               .len = staging.size()};
    if (staging.empty() ||
        agent_->register_mem(MemType::kDram, std::span(&whole, 1)) != Outcome::kSuccess) {
      return Error(Code::kUnavailable,
                   fmt::format("worker.handoff_bytes {} cannot be had", options_.staging_bytes));
    }
  }
  STATOR_TRY(const auto known, transfer::decode_metadata(agent_->local_md()));
  Link& link = *this;
  if (options_.role == inference::WorkerRole::kPrefill) {
    Giver::Options giver{.engine_name = options_.engine_name,
                         .kind = ability_.kind,
                         .space = options_.space,
                         .block_tokens = options_.block_tokens,
                         .block_bytes = options_.block_bytes,
                         .lease = options_.lease,
                         .metadata = agent_->local_md(),
                         .agent = agent_->name(),
                         .epoch = known.epoch};
    giver_ = std::make_unique<Giver>(std::move(giver), staging, link, clock_, metrics_);
  } else {
    Taker::Options taker{.engine_name = options_.engine_name,
                         .kind = ability_.kind,
                         .space = options_.space,
                         .block_bytes = options_.block_bytes,
                         .metadata = agent_->local_md(),
                         .patience = options_.patience};
    taker_ = std::make_unique<Taker>(std::move(taker), *agent_, link, clock_, metrics_);
  }
  thread_ = net::Thread("handoff", [this] { run(); });
  return {};
}

Port::~Port() {
  close();
}

Status Port::register_memory(std::span<std::byte> memory) {
  const transfer::Desc whole{.addr = reinterpret_cast<uint64_t>(memory.data()),
                             .len = memory.size()};
  const Outcome outcome = agent_->register_mem(MemType::kDram, std::span(&whole, 1));
  return outcome == Outcome::kSuccess
             ? Status()
             : Status(Error(Code::kInternal, fmt::format("memory to read prompts into: {}",
                                                         transfer::to_string(outcome))));
}

void Port::close() {
  if (giver_ != nullptr) {
    giver_->close();
  }
  if (taker_ != nullptr) {
    taker_->close();
  }
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    work_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

std::string Port::introduce(std::string_view metadata) {
  const auto read = transfer::decode_metadata(metadata);
  if (!read) {
    return {};
  }
  std::pair<std::string, uint64_t> peer(read->agent, read->epoch);
  const MutexLock lock(mutex_);
  if (std::ranges::find(peers_, peer) != peers_.end()) {
    return peer.first;
  }
  std::string name;
  if (agent_->load_remote_md(metadata, name) != Outcome::kSuccess) {
    return {};
  }
  if (peers_.size() >= kPeersMax) {
    agent_->invalidate_remote_md(peers_.front().first);
    peers_.pop_front();
  }
  peers_.push_back(std::move(peer));
  return name;
}

bool Port::send(std::string_view agent, const Message& message) {
  return agent_->gen_notification(agent, encode(message)) == Outcome::kSuccess;
}

void Port::wake() {
  const MutexLock lock(mutex_);
  news_ = true;
  work_.notify_one();
}

void Port::take_mail() {
  for (const auto& [peer, messages] : agent_->notifications()) {
    for (const std::string& bytes : messages) {
      const auto message = decode_message(bytes);
      if (!message) {
        garbled_.add();
      } else if (giver_ != nullptr) {
        giver_->on_message(peer, *message);
      } else {
        taker_->on_message(peer, *message);
      }
    }
  }
}

void Port::run() {
  TimePoint next = TimePoint::max();
  while (true) {
    bool stopping = false;
    {
      MutexLock lock(mutex_);
      while (!news_ && !stopping_) {
        if (next == TimePoint::max()) {
          work_.wait(lock);
        } else if (const Duration left = next - clock_.now(); left > Duration::zero()) {
          work_.wait_for(lock, left);
        } else {
          break;
        }
      }
      if (stopping_) {
        work_.wait_for(lock, kSettle);  // transfers are ending
      }
      news_ = false;
      stopping = stopping_;
    }
    take_mail();
    const TimePoint now = clock_.now();
    next = giver_ != nullptr ? giver_->advance(now) : taker_->advance(now);
    if (stopping && (taker_ == nullptr || taker_->none())) {
      return;
    }
  }
}

}  // namespace stator::engine::handoff
