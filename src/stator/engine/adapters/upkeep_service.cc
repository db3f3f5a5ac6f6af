// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/core/log.h"
#include "stator/engine/adapters/upkeep.h"

namespace stator::engine::adapters {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kLogTarget = "engine::adapter";
constexpr size_t kPollBytesMax = size_t{16} << 20;
constexpr Duration kPollTimeout = 5s;
// A poll without an answer for so long makes the server suspect, at the latest.
constexpr Duration kPollPatience = 2s;
constexpr size_t kControlsMax = Upkeep::kStreamsMax - 2;
// Loading an adapter from a slow disk, or letting running requests end before sleep.
constexpr Duration kControlTimeout = 120s;

bool changes_sleep(const Control& control) {
  return std::holds_alternative<Sleep>(control) || std::holds_alternative<WakeUp>(control);
}

/// Appends what fits into `bytes_max`.
void append(std::string& body, std::string_view bytes, size_t bytes_max) {
  body += bytes.substr(0, bytes_max - std::min(bytes_max, body.size()));
}

Error stopping() {
  return {Code::kDraining, "the engine is shutting down"};
}

}  // namespace

net::HttpHeaderList headers_of(const AdapterConfig& config) {
  net::HttpHeaderList out = {{"Content-Type", "application/json"}};
  if (!config.api_key.empty()) {
    out.emplace_back("Authorization", "Bearer " + config.api_key);
  }
  return out;
}

Upkeep::Upkeep(const Parts& parts)
    : parts_(parts),
      watch_(parts.dialect, parts.facts, parts.config.url),
      adapters_(parts.facts.adapters) {
  load_.kv_total_blocks = parts.facts.total_blocks;
  parts.metrics.set_up(true);
}

std::vector<std::string> Upkeep::adapters() const {
  const MutexLock lock(mutex_);
  return adapters_;
}

LoadReport Upkeep::load(size_t inflight) const {
  const MutexLock lock(mutex_);
  LoadReport out = load_;
  // The scrape is up to a second old; what went through here since is known exactly.
  const auto total = static_cast<uint32_t>(inflight) + foreign_;
  out.waiting = std::min(out.waiting, total);
  out.running = total - out.waiting;
  return out;
}

bool Upkeep::has_adapter(std::string_view name) const {
  const MutexLock lock(mutex_);
  return std::ranges::binary_search(adapters_, name);
}

void Upkeep::gave_prompt(Duration lease) {
  last_gift_ = parts_.clock.now();
  const MutexLock lock(mutex_);
  owed_until_ = std::max(owed_until_, last_gift_ + lease);
}

bool Upkeep::owes_prompts() const {
  const MutexLock lock(mutex_);
  return parts_.clock.now() < owed_until_;
}

bool Upkeep::control(Control control, Done done) {
  auto call = parts_.dialect.lower_control(control);
  Status taken = call ? Status() : Status(std::move(call.error()));
  if (taken) {
    const MutexLock lock(mutex_);
    if (stopping_) {
      taken = stopping();
    } else if (open_ >= kControlsMax) {
      taken = Error(Code::kOverloaded, fmt::format("{} wishes wait for {} already, try again later",
                                                   open_, parts_.config.url));
    } else {
      ++open_;
      if (std::holds_alternative<Sleep>(control)) {
        set_asleep(true);
      }
      inbox_.push_back({std::move(control), std::move(*call), std::move(done)});
      return true;
    }
  }
  done(std::move(taken));
  return false;
}

TimePoint Upkeep::turn(net::HttpStreams& streams) {
  {
    const MutexLock lock(mutex_);
    begun_.swap(inbox_);
  }
  for (Ask& ask : begun_) {
    start(std::move(ask), streams);
  }
  begun_.clear();
  if (const TimePoint now = parts_.clock.now(); now >= next_poll_) {
    next_poll_ = now + parts_.config.poll_interval;
    start_poll(streams);
  }
  return std::min(next_poll_, ping_if_due(streams, parts_.clock.now()));
}

bool Upkeep::on_head(net::HttpStreamId stream, int status) {
  if (stream == poll_stream_) {
    poll_status_ = status;
    return true;
  }
  if (stream == ping_stream_) {
    return true;
  }
  const auto found = asks_.find(stream);
  if (found != asks_.end()) {
    found->second->status = status;
  }
  return found != asks_.end();
}

bool Upkeep::on_bytes(net::HttpStreamId stream, std::string_view bytes) {
  if (stream == poll_stream_) {
    append(poll_body_, bytes, kPollBytesMax);
    return true;
  }
  if (stream == ping_stream_) {
    return true;
  }
  const auto found = asks_.find(stream);
  if (found != asks_.end()) {
    append(found->second->body, bytes, kErrorBytesMax);
  }
  return found != asks_.end();
}

bool Upkeep::on_end(net::HttpStreamId stream, Status& reached, net::HttpStreams& streams,
                    size_t inflight) {
  if (stream == poll_stream_) {
    poll_stream_ = 0;
    finish_poll(reached, inflight);
    return true;
  }
  if (stream == ping_stream_) {
    ping_stream_ = 0;
    return true;
  }
  const auto found = asks_.find(stream);
  if (found == asks_.end()) {
    return false;
  }
  auto ask = std::move(found->second);
  asks_.erase(found);
  finish(std::move(ask), std::move(reached), streams);
  return true;
}

void Upkeep::stop(net::HttpStreams& streams) {
  end_poll(streams);
  end_ping(streams);
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    begun_.swap(inbox_);
    open_ = 0;
  }
  for (Ask& ask : begun_) {
    ask.done(stopping());
  }
  begun_.clear();
  for (const auto& [stream, ask] : asks_) {
    streams.cancel(stream);
    ask->done(stopping());
  }
  asks_.clear();
}

// ---- operators' wishes

void Upkeep::start(Ask ask, net::HttpStreams& streams) {
  net::HttpClientRequest request{.method = "POST",
                                 .url = parts_.config.url + ask.call.path,
                                 .headers = headers_of(parts_.config),
                                 .body = std::move(ask.call.body)};
  auto stream = streams.start(std::move(request), {.connect_timeout = parts_.config.connect_timeout,
                                                   .timeout = kControlTimeout,
                                                   .stall_timeout = Duration::zero()});
  auto owned = std::make_unique<Ask>(std::move(ask));
  if (stream) {
    asks_.emplace(*stream, std::move(owned));
  } else {
    finish(std::move(owned), std::move(stream.error()), streams);
  }
}

void Upkeep::finish(std::unique_ptr<Ask> ask, Status reached, net::HttpStreams& streams) {
  Status outcome =
      reached ? parts_.dialect.read_control(ask->control, ask->status, ask->body)
              : Status(std::move(reached.error()).with_context("asking " + parts_.config.url));
  if (outcome) {
    note(ask->control);
  } else if (std::holds_alternative<Sleep>(ask->control)) {
    set_asleep(false);
  }
  if (changes_sleep(ask->control)) {
    end_poll(streams);  // what it says may be older than this
    look_now();
  }
  parts_.metrics.count_control(to_string(ask->control), outcome.has_value());
  {
    const MutexLock lock(mutex_);
    --open_;
  }
  ask->done(std::move(outcome));
}

/// What the server has just done changes what is known of it.
void Upkeep::note(const Control& control) {
  log::info(kLogTarget, "the engine did what was asked",
            {{"url", parts_.config.url}, {"asked", to_string(control)}});
  if (const auto* load = std::get_if<LoadAdapter>(&control)) {
    const MutexLock lock(mutex_);
    const auto place = std::ranges::lower_bound(adapters_, load->name);
    if (place == adapters_.end() || *place != load->name) {
      adapters_.insert(place, load->name);
    }
  } else if (const auto* unload = std::get_if<UnloadAdapter>(&control)) {
    const MutexLock lock(mutex_);
    std::erase(adapters_, unload->name);
  } else if (std::holds_alternative<WakeUp>(control)) {
    set_asleep(false);
  } else {
    std::vector<kv::KvEvent> cleared;
    for (uint32_t rank = 0; rank < parts_.facts.dp_size; ++rank) {
      cleared.push_back({.dp_rank = rank, .data = kv::AllCleared{}});
    }
    parts_.events.append(std::move(cleared));
  }
}

void Upkeep::set_asleep(bool asleep) {
  if (asleep_.exchange(asleep) != asleep) {
    parts_.metrics.set_asleep(asleep);
    log::info(kLogTarget, asleep ? "the engine sleeps: it gets nothing new" : "the engine is awake",
              {{"url", parts_.config.url}});
  }
}

// ---- health and load

void Upkeep::start_poll(net::HttpStreams& streams) {
  if (poll_stream_ != 0) {
    return;
  }
  poll_body_.clear();
  poll_status_ = 0;
  poll_begin_ = parts_.clock.now();
  auto stream =
      streams.start({.method = "GET",
                     .url = parts_.config.url + std::string(watch_.next_path()),
                     .headers = headers_of(parts_.config)},
                    {.connect_timeout = parts_.config.connect_timeout, .timeout = kPollTimeout});
  if (stream) {
    poll_stream_ = *stream;
  }
}

void Upkeep::end_poll(net::HttpStreams& streams) {
  if (poll_stream_ != 0) {
    streams.cancel(std::exchange(poll_stream_, 0));
  }
}

void Upkeep::end_ping(net::HttpStreams& streams) {
  if (ping_stream_ != 0) {
    streams.cancel(std::exchange(ping_stream_, 0));
  }
}

/// Metrics may wait for a long step of the engine (llama.cpp); health is what the server's own
/// thread answers. Returns when there is something to do again.
TimePoint Upkeep::ping_if_due(net::HttpStreams& streams, TimePoint now) {
  const Duration limit = parts_.config.silence_timeout;
  if (limit <= Duration::zero() || !healthy_ || (poll_stream_ == 0 && ping_stream_ == 0)) {
    return TimePoint::max();
  }
  const Duration patience = std::min(kPollPatience, limit / 4);
  if (ping_stream_ != 0) {
    return now + patience / 2;
  }
  const TimePoint due = std::max(poll_begin_, ping_begin_) + patience;
  if (now < due) {
    return due;
  }
  ping_begin_ = now;
  auto stream = streams.start(
      {.method = "GET",
       .url = parts_.config.url + std::string(parts_.dialect.traits().health_path),
       .headers = headers_of(parts_.config)},
      {.connect_timeout = limit, .timeout = limit + kPollTimeout, .stall_timeout = {}});
  if (stream) {
    ping_stream_ = *stream;
  }
  return now + patience / 2;
}

bool Upkeep::stands_still(TimePoint turn_begin, net::HttpStreams& streams) {
  const Duration limit = parts_.config.silence_timeout;
  if (!silence_.lasts(ping_stream_ != 0, turn_begin, limit - std::min(kPollPatience, limit / 4))) {
    return false;
  }
  end_ping(streams);
  end_poll(streams);  // it may take seconds to fail; the next one asks whether it is back
  parts_.metrics.stalls.add();
  set_healthy(false, "it sent nothing for engine.silence_timeout");
  return true;
}

void Upkeep::finish_poll(const Status& reached, size_t inflight) {
  if (!reached || poll_status_ >= 500) {
    parts_.metrics.poll_failures.add();
  }
  EngineWatch::Finding found = watch_.on_answer(reached, poll_status_, poll_body_);
  if (found.up) {
    set_healthy(*found.up, found.why);
  }
  if (found.adapters) {
    const MutexLock lock(mutex_);
    adapters_ = std::move(*found.adapters);
  }
  if (!found.reading) {
    return;
  }
  const bool deciding = std::ranges::any_of(
      asks_, [](const auto& entry) { return changes_sleep(entry.second->control); });
  if (found.reading->asleep && !deciding) {
    set_asleep(*found.reading->asleep);
  }
  publish(found.reading->load, inflight);
}

void Upkeep::set_healthy(bool healthy, std::string_view why) {
  if (healthy_.exchange(healthy) == healthy) {
    return;
  }
  parts_.metrics.set_up(healthy);
  if (healthy) {
    log::info(kLogTarget, "the engine answers again", {{"url", parts_.config.url}});
    return;
  }
  log::warn(kLogTarget, "the engine does not answer: it gets nothing new",
            {{"url", parts_.config.url}, {"why", why}});
}

void Upkeep::publish(const LoadReport& load, size_t inflight) {
  {
    const MutexLock lock(mutex_);
    // Blocks that wait for their taker count as used.
    if (load.kv_total_blocks > 0 && load.kv_used_blocks == 0 && poll_begin_ > last_gift_) {
      owed_until_ = {};
    }
    load_ = load;
    load_.kv_total_blocks = parts_.facts.total_blocks;
    const uint32_t total = load.running + load.waiting;
    foreign_ = total - std::min(total, static_cast<uint32_t>(inflight));
  }
  parts_.metrics.update(this->load(inflight));
}

}  // namespace stator::engine::adapters
