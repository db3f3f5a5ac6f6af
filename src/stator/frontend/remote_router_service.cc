// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "stator/frontend/asked_server.h"
#include "stator/frontend/remote_router.h"
#include "stator/json/value.h"
#include "stator/json/writer.h"
#include "stator/router/router.h"

namespace stator::frontend {
namespace {

using router::Advice;
using router::RouteRequest;

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

/// What a router tells of its bookings; these may outlive the router.
class Teller {
 public:
  Teller(std::shared_ptr<AskedServer> server, const RemoteMetrics& metrics)
      : server_(std::move(server)), metrics_(metrics) {}

  void tell(std::string_view method, std::string path) const {
    AskedServer::Question message{.method = std::string(method),
                                  .path = std::move(path),
                                  .timeout = kTellTimeout,
                                  .on_answer = [lost = metrics_.lost](const auto* answer) {
                                    lost.add(answer == nullptr ? 1 : 0);
                                    return answer != nullptr;
                                  }};
    if (!server_->ask(std::move(message))) {
      metrics_.dropped.add();
    }
  }
  void count_booking(double change) const { metrics_.bookings.add(change); }

 private:
  const std::shared_ptr<AskedServer> server_;
  const RemoteMetrics metrics_;
};

class Booking final : public router::RemoteBooking {
 public:
  Booking(Teller teller, std::string_view id)
      : teller_(std::move(teller)), path_(fmt::format("/reservations/{}", id)) {
    teller_.count_booking(1);
  }
  Booking(const Booking&) = delete;
  Booking& operator=(const Booking&) = delete;
  ~Booking() override {
    teller_.count_booking(-1);
    teller_.tell("DELETE", path_);
  }
  void prefill_completed() noexcept override { teller_.tell("POST", path_ + "/prefill_complete"); }

 private:
  const Teller teller_;
  const std::string path_;
};

class Service final : public RemoteRouter {
 public:
  Service(std::shared_ptr<AskedServer> server, Duration timeout, Metrics& metrics)
      : metrics_(metrics), server_(std::move(server)), timeout_(timeout) {}
  ~Service() override { server_->stop(); }

  void advise(const RouteRequest& request, Answer answer) override {
    if (server_->paused()) {
      metrics_.skipped.add();
      answer(std::nullopt);
      return;
    }
    auto waits = std::make_shared<Answer>(std::move(answer));
    if (!server_->ask({.path = "/select_and_reserve",
                       .body = render_question(request),
                       .timeout = timeout_,
                       .on_answer = [this, waits](const AskedServer::Answer* got) {
                         (*waits)(advice_of(got));
                         return got != nullptr;  // an error of its own is an answer
                       }})) {
      metrics_.skipped.add();
      (*waits)(std::nullopt);
    }
  }

 private:
  std::optional<Advice> advice_of(const AskedServer::Answer* got) {
    std::optional<Chosen> chosen;
    if (got != nullptr && (got->status == 200 || got->status == 201)) {
      chosen = parse_choice(got->body);
    }
    if (!chosen) {
      metrics_.failures.add();
      return std::nullopt;
    }
    return Advice{
        .worker = chosen->worker,
        .overlap_blocks = chosen->overlap_tokens / chosen->block_size,
        .booking = std::make_unique<Booking>(Teller(server_, metrics_), chosen->reservation)};
  }

  const RemoteMetrics metrics_;
  const std::shared_ptr<AskedServer> server_;  // shared with bookings
  const Duration timeout_;
};

}  // namespace

Result<std::shared_ptr<RemoteRouter>> RemoteRouter::start(const RemoteRouterConfig& config,
                                                          const Clock& clock, Metrics& metrics) {
  const std::string url = base_url(config.url);
  if (url.empty() || config.timeout <= Duration::zero()) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("router.url (flag --router-url) must be http://HOST:PORT, not '{}', and "
                    "router.url_timeout more than 0",
                    config.url));
  }
  STATOR_TRY(auto server,
             AskedServer::start({.thread = "remote-router",
                                 .url = url,
                                 .log_target = "frontend::router",
                                 .away = "the remote router does not answer; deciding here",
                                 .open_max = kOpenMax},
                                clock));
  return std::make_shared<Service>(std::move(server), config.timeout, metrics);
}

}  // namespace stator::frontend
