// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <atomic>
#include <deque>
#include <optional>
#include <utility>
#include <variant>

#include "stator/core/flat_map.h"
#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/frontend/remote_router.h"
#include "stator/json/value.h"
#include "stator/json/writer.h"
#include "stator/net/http_streams.h"
#include "stator/net/thread.h"
#include "stator/router/router.h"

namespace stator::frontend {
namespace {

using router::Advice;
using router::RouteRequest;

constexpr std::string_view kLogTarget = "frontend::router";
constexpr size_t kAnswerBytesMax = size_t{1} << 20;
constexpr Duration kTurn = std::chrono::milliseconds(100);
constexpr Duration kTellTimeout = std::chrono::seconds(5);  // for what nobody waits for

void write_texts(json::Writer& out, std::span<const std::string> texts) {
  out.begin_array();
  for (const std::string& text : texts) {
    out.value(text);
  }
  out.end_array();
}

void write_override(json::Writer& out, const router::CostOverride& override) {
  out.key("router_config_override").begin_object();
  const auto number = [&](std::string_view name, const std::optional<double>& value) {
    if (value) {
      out.key(name).value(*value);
    }
  };
  number("overlap_score_credit", override.overlap_credit);
  number("prefill_load_scale", override.prefill_load_scale);
  number("router_temperature", override.temperature);
  number("shared_cache_multiplier", override.shared_multiplier);
  if (override.assume_kv_reuse) {
    out.key("assume_kv_reuse").value(*override.assume_kv_reuse);
  }
  if (override.track_prefill_tokens) {
    out.key("track_prefill_tokens").value(*override.track_prefill_tokens);
  }
  out.end_object();
}

std::string render_question(const RouteRequest& request) {
  std::string body;
  json::Writer out(body);
  out.begin_object();
  out.key("model_name").value(request.model);
  out.key("isl_tokens").value(request.prompt_tokens);
  out.key("sequence_hashes").begin_array();
  for (const auto hash : request.sequences) {
    out.value(hash.value());
  }
  out.end_array();
  if (!request.constraints.allowed.empty()) {
    out.key("allowed_worker_ids").begin_array();
    for (const WorkerId worker : request.constraints.allowed) {
      out.value(worker.value());
    }
    out.end_array();
  }
  const auto& constraints = request.constraints;
  if (!constraints.required_taints.empty() || !constraints.preferred_taints.empty()) {
    out.key("routing_constraints").begin_object();
    out.key("required_taints");
    write_texts(out, constraints.required_taints);
    out.key("preferred_taints").begin_object();
    for (const auto& [name, weight] : constraints.preferred_taints) {
      out.key(name).value(weight);
    }
    out.end_object();
    out.end_object();
  }
  write_override(out, request.override);
  if (request.expected_output_tokens) {
    out.key("expected_output_tokens").value(*request.expected_output_tokens);
  }
  out.end_object();
  return body;
}

struct Chosen {
  WorkerKey worker;
  uint32_t overlap_tokens = 0;
  uint32_t block_size = 1;
  std::string reservation;
};

std::optional<Chosen> parse_choice(std::string_view body) {
  const auto answer = json::parse(body);
  if (!answer) {
    return std::nullopt;
  }
  const auto number = [](const json::Value& object, std::string_view name) -> uint64_t {
    return object.at(name).as_uint64().value_or(0);
  };
  Chosen chosen{
      .worker = {WorkerId(number(*answer, "worker_id")),
                 static_cast<uint32_t>(number(*answer, "dp_rank"))},
      .block_size = static_cast<uint32_t>(std::max<uint64_t>(1, number(*answer, "block_size")))};
  const json::Value* id = answer->find("selection_id");
  if (chosen.worker.worker.value() == 0 || id == nullptr || !id->is_string()) {
    return std::nullopt;
  }
  chosen.reservation = id->text();
  if (const json::Value* overlap = answer->find("overlap");
      overlap != nullptr && overlap->is_object()) {
    chosen.overlap_tokens = static_cast<uint32_t>(number(*overlap, "gpu"));
  }
  return chosen;
}

struct RemoteMetrics {
  explicit RemoteMetrics(Metrics& metrics)
      : failures(metrics.counter("dynamo_component_router_remote_indexer_query_failures_total",
                                 "questions to the remote router without a usable answer")),
        lost(metrics.counter("dynamo_component_router_remote_indexer_write_failures_total",
                             "messages to it that did not arrive")),
        skipped(metrics.counter("stator_router_remote_skipped_total",
                                "requests it was not asked about, as it had just failed")),
        dropped(metrics.counter("stator_router_remote_dropped_total",
                                "messages to it that were not sent, as too many waited")),
        bookings(metrics.gauge("stator_router_remote_bookings",
                               "requests booked there and not ended")) {}
  Counter failures;
  Counter lost;
  Counter skipped;
  Counter dropped;
  Gauge bookings;
};

/// Without a method: nobody is to be asked, and the answer is none.
struct Message {
  std::string method{};
  std::string path{};
  std::string body{};
  router::Advisor::Answer ask{};  // empty: nobody waits
};

/// What waits to be sent; bookings may outlive who sends it.
class Outbox {
 public:
  explicit Outbox(Counter dropped) : dropped_(dropped) {}

  void open(net::HttpStreams& streams) {
    const MutexLock lock(mutex_);
    streams_ = &streams;
  }
  void close() {
    const MutexLock lock(mutex_);
    streams_ = nullptr;
  }
  void push(Message message) {
    const MutexLock lock(mutex_);
    if (streams_ == nullptr || (messages_.size() >= RemoteRouter::kWaitingMax && !message.ask)) {
      dropped_.add();
      return;
    }
    messages_.push_back(std::move(message));
    streams_->wake();
  }
  std::deque<Message> take() {
    const MutexLock lock(mutex_);
    return std::exchange(messages_, {});
  }

 private:
  const Counter dropped_;
  Mutex mutex_;
  net::HttpStreams* streams_ STATOR_GUARDED_BY(mutex_) = nullptr;
  std::deque<Message> messages_ STATOR_GUARDED_BY(mutex_);
};

class Booking final : public router::RemoteBooking {
 public:
  Booking(std::shared_ptr<Outbox> outbox, Gauge live, std::string_view id)
      : outbox_(std::move(outbox)), live_(live), path_(fmt::format("/reservations/{}", id)) {
    live_.add(1);
  }
  Booking(const Booking&) = delete;
  Booking& operator=(const Booking&) = delete;
  ~Booking() override {
    live_.add(-1);
    outbox_->push({.method = "DELETE", .path = path_});
  }
  void prefill_completed() noexcept override {
    outbox_->push({.method = "POST", .path = path_ + "/prefill_complete"});
  }

 private:
  const std::shared_ptr<Outbox> outbox_;  // shared: see Outbox
  const Gauge live_;
  const std::string path_;
};

class Service final : public RemoteRouter, public net::HttpStreamsListener {
 public:
  Service(RemoteRouterConfig config, const Clock& clock, Metrics& metrics)
      : config_(std::move(config)),
        clock_(clock),
        metrics_(metrics),
        outbox_(std::make_shared<Outbox>(metrics_.dropped)) {}
  ~Service() override {
    stopping_.store(true);
    outbox_->close();
    if (thread_.joinable()) {
      streams_->wake();
      thread_.join();
    }
  }

  Status open() {
    STATOR_TRY(streams_, net::HttpStreams::create({}, *this, clock_));
    outbox_->open(*streams_);
    thread_ = net::Thread("remote-router", [this] { run(); });
    return {};
  }

  void advise(const RouteRequest& request, Answer answer) override {
    if (clock_.now().time_since_epoch().count() < paused_until_.load(std::memory_order_relaxed)) {
      metrics_.skipped.add();
      outbox_->push({.ask = std::move(answer)});
      return;
    }
    outbox_->push({.method = "POST",
                   .path = "/select_and_reserve",
                   .body = render_question(request),
                   .ask = std::move(answer)});
  }

  // On the thread.
  void on_head(net::HttpStreamId stream, int status, std::string_view) override {
    calls_.at(stream).status = status;
  }
  void on_bytes(net::HttpStreamId stream, std::string_view bytes) override {
    Call& call = calls_.at(stream);
    if (call.body.size() + bytes.size() <= kAnswerBytesMax) {
      call.body += bytes;
    }
  }
  void on_end(net::HttpStreamId stream, Status status) override {
    const auto known = calls_.find(stream);
    Call call = std::move(known->second);
    calls_.erase(known);
    finish(std::move(call), status.has_value());
  }

 private:
  struct Call {
    Answer ask;  // empty: nobody waits
    int status = 0;
    std::string body;
  };
  void run() {
    while (!stopping_.load()) {
      for (Message& message : outbox_->take()) {
        send(std::move(message));
      }
      streams_->turn(kTurn);
    }
  }

  void send(Message message) {
    if (message.method.empty()) {
      message.ask(std::nullopt);
      return;
    }
    const Duration timeout = message.ask ? config_.timeout : kTellTimeout;
    auto started = streams_->start({.method = std::move(message.method),
                                    .url = config_.url + message.path,
                                    .headers = {{"Content-Type", "application/json"}},
                                    .body = std::move(message.body)},
                                   {.connect_timeout = timeout, .timeout = timeout});
    Call call{.ask = std::move(message.ask)};
    if (started) {
      calls_.emplace(*started, std::move(call));
    } else {
      finish(std::move(call), false);
    }
  }

  void finish(Call call, bool answered) {
    note(answered);
    if (!call.ask) {
      metrics_.lost.add(answered ? 0 : 1);
      return;
    }
    std::optional<Chosen> chosen;
    if (answered && (call.status == 200 || call.status == 201)) {
      chosen = parse_choice(call.body);
    }
    if (!chosen) {
      metrics_.failures.add();
      call.ask(std::nullopt);
      return;
    }
    call.ask(Advice{
        .worker = chosen->worker,
        .overlap_blocks = chosen->overlap_tokens / chosen->block_size,
        .booking = std::make_unique<Booking>(outbox_, metrics_.bookings, chosen->reservation)});
  }

  /// Whether it can be asked at all. An error of its own is an answer.
  void note(bool answered) {
    failed_ = answered ? 0 : failed_ + 1;
    if (failed_ == kFailuresMax) {
      log::warn(kLogTarget, "the remote router does not answer; deciding here",
                {{"url", config_.url}});
    }
    if (failed_ >= kFailuresMax) {
      paused_until_.store((clock_.now() + kPause).time_since_epoch().count(),
                          std::memory_order_relaxed);
    }
  }

  const RemoteRouterConfig config_;
  const Clock& clock_;
  const RemoteMetrics metrics_;
  std::unique_ptr<net::HttpStreams> streams_;
  FlatMap<net::HttpStreamId, Call> calls_;  // of the thread; bounded by streams
  int failed_ = 0;                          // in a row; of the thread
  std::atomic<int64_t> paused_until_{0};
  std::atomic<bool> stopping_{false};
  const std::shared_ptr<Outbox> outbox_;  // shared with bookings
  net::Thread thread_;
};

}  // namespace

Result<std::shared_ptr<RemoteRouter>> RemoteRouter::start(const RemoteRouterConfig& config,
                                                          const Clock& clock, Metrics& metrics) {
  RemoteRouterConfig checked = config;
  while (checked.url.ends_with('/')) {
    checked.url.pop_back();
  }
  const bool is_http = checked.url.starts_with("http://") || checked.url.starts_with("https://");
  if (!is_http || checked.timeout <= Duration::zero()) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("router.url (flag --router-url) must be http://HOST:PORT, not '{}', and "
                    "router.url_timeout more than 0",
                    config.url));
  }
  auto service = std::make_shared<Service>(std::move(checked), clock, metrics);
  STATOR_CHECK(service->open());
  return std::shared_ptr<RemoteRouter>(std::move(service));
}

}  // namespace stator::frontend
