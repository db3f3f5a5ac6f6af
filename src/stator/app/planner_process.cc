// SPDX-License-Identifier: Apache-2.0
#include "stator/app/planner_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/app/cluster_client.h"
#include "stator/app/event_carrier.h"
#include "stator/app/min_endpoints.h"
#include "stator/app/option_number.h"
#include "stator/app/planner_file.h"
#include "stator/app/planner_plugins.h"
#include "stator/app/process_metrics.h"
#include "stator/app/run_server.h"
#include "stator/app/signals.h"
#include "stator/core/log.h"
#include "stator/json/value.h"
#include "stator/kv_events/forward_pass_publisher.h"
#include "stator/kv_events/forward_pass_wire.h"
#include "stator/net/loopback.h"
#include "stator/perf/timing_spec.h"

namespace stator::app {
namespace {

constexpr size_t kBodyBytesMax = 64UL << 10;
constexpr size_t kConnectionsMax = 256;
constexpr Duration kPageTimeout = std::chrono::seconds(5);
constexpr double kPortUsual = 9086;

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (!word.empty()) {
      out.emplace_back(word.ends_with('/') ? word.substr(0, word.size() - 1) : word);
    }
  }
  return out;
}

Result<std::unique_ptr<scaling::KeyStore>> open_etcd_store(const Settings& settings,
                                                           const std::string& url,
                                                           const std::string& name_space) {
  STATOR_TRY(discovery::EtcdOptions options, discovery::parse_etcd_url(url), "--etcd");
  options.username = settings.etcd.username;
  options.password = settings.etcd.password;
  options.ca_path = settings.etcd.ca_path;
  options.certificate_path = settings.etcd.certificate_path;
  options.key_path = settings.etcd.key_path;
  return scaling::open_etcd_store(options, name_space.empty() ? "dynamo" : name_space);
}

/// Decides and tells, but has nobody to tell.
class NoConnector final : public scaling::Connector {
 public:
  std::string_view name() const override { return "none"; }
  Result<scaling::PoolCounts> counts() override { return scaling::PoolCounts(); }
  Status set(const scaling::PoolTargets& /*targets*/, std::string_view /*reason*/) override {
    return Error(Code::kUnsupported, "no connector: give --connector");
  }
};

struct Connected {
  std::unique_ptr<kube::Client> cluster;
  std::unique_ptr<scaling::Connector> connector;
};

Result<Connected> connect(const Invocation& invocation, Clock& clock, Metrics& metrics) {
  Connected out;
  const std::string kind = option_of(invocation, "--connector", "none");
  const std::string name_space = option_of(invocation, "--dynamo-namespace", "");
  const kube::ObjectName graph{option_of(invocation, "--kube-namespace", ""),
                               option_of(invocation, "--graph", "")};
  if (kind == "none") {
    out.connector = std::make_unique<NoConnector>();
  } else if (kind == "virtual") {
    const std::string folder = option_of(invocation, "--folder", "");
    const std::string etcd = option_of(invocation, "--etcd", "");
    if (folder.empty() == etcd.empty()) {
      return Error(Code::kInvalidArgument,
                   "--connector virtual needs --folder DIR or --etcd etcd://HOST:PORT");
    }
    std::unique_ptr<scaling::KeyStore> store;
    if (folder.empty()) {
      STATOR_TRY(store, open_etcd_store(invocation.settings, etcd, name_space));
    } else {
      STATOR_TRY(store, scaling::open_folder_store(folder), "--folder");
    }
    out.connector = scaling::make_virtual_connector(std::move(store), {}, clock);
  } else if (kind == "process") {
    if (invocation.rest.empty()) {
      return Error(Code::kInvalidArgument,
                   "--connector process needs the command of one worker behind --");
    }
    out.connector = scaling::make_process_connector(
        {.command = invocation.rest, .prefill_command = {}}, clock, metrics);
  } else if (kind == "kubernetes") {
    if (graph.name.empty()) {
      return Error(Code::kInvalidArgument, "--connector kubernetes needs --graph NAME");
    }
    STATOR_TRY(out.cluster, make_cluster_client(invocation, "stator-planner", clock, metrics));
    scaling::KubeOptions options{
        .graph = graph,
        .prefill_component = option_of(invocation, "--prefill-component", ""),
        .decode_component = option_of(invocation, "--decode-component", "")};
    options.graph.space = graph.space.empty() ? out.cluster->space() : graph.space;
    out.connector = scaling::make_kube_connector(std::move(options), *out.cluster);
  } else if (kind == "global-planner") {
    const std::string url = option_of(invocation, "--global-url", "");
    if (url.empty() || graph.name.empty()) {
      return Error(Code::kInvalidArgument,
                   "--connector global-planner needs --global-url URL and --graph NAME");
    }
    out.connector = scaling::make_global_connector({.url = url,
                                                    .caller_namespace = name_space,
                                                    .graph = graph.name,
                                                    .kube_namespace = graph.space});
  } else {
    return Error(Code::kInvalidArgument,
                 fmt::format("--connector must be none, virtual, process, kubernetes or "
                             "global-planner, not '{}'",
                             kind));
  }
  return out;
}

/// Passes from the broker to the board.
class PassFeed final : public kv_events::NatsListener {
 public:
  PassFeed(scaling::PassBoard& board, const Clock& clock, Metrics& metrics)
      : board_(board),
        clock_(clock),
        unreadable_(metrics.counter("stator_planner_unreadable_passes_total",
                                    "messages that are no forward passes")) {}
  void on_message(std::string_view /*subject*/, std::string_view payload,
                  std::string_view /*reply*/) override {
    const auto message = kv_events::decode_forward_pass(payload);
    if (!message) {
      unreadable_.add();
      return;
    }
    board_.add(message->worker.value(), message->pass,
               std::chrono::duration<double>(clock_.now().time_since_epoch()).count());
  }

 private:
  scaling::PassBoard& board_;
  const Clock& clock_;
  Counter unreadable_;
};

scaling::ObserverConfig read_observer(const Invocation& invocation,
                                      const planner::PlannerConfig& goals, double block_size,
                                      const PlannerFileFacts& facts) {
  const std::string_view source = facts.from_router ? "router" : "frontend";
  return {.prefix = option_of(invocation, "--metrics-prefix", "dynamo_frontend"),
          .model = option_of(invocation, "--model", facts.model),
          .name_space = option_of(invocation, "--dynamo-namespace", facts.name_space),
          .block_size = block_size,
          .ttft_ms = goals.ttft_ms,
          .itl_ms = goals.itl_ms,
          .from_router = option_of(invocation, "--metrics-source", source) == "router"};
}

Result<std::vector<std::unique_ptr<scaling::Source>>> open_sources(
    const Invocation& invocation, const scaling::ObserverConfig& observer,
    const PlannerFileFacts& facts) {
  std::vector<std::unique_ptr<scaling::Source>> out;
  const auto urls = split(option_of(invocation, "--frontend", ""));
  const bool given = !urls.empty() || invocation.options.contains("--passes");
  const std::string prometheus =
      option_of(invocation, "--prometheus", given ? std::string() : facts.prometheus);
  if (!urls.empty() && !prometheus.empty()) {
    return Error(Code::kInvalidArgument,
                 "--frontend and --prometheus would count every request twice: give one");
  }
  if (!urls.empty()) {
    out.push_back(scaling::make_page_source(urls, kPageTimeout));
  } else if (!prometheus.empty()) {
    out.push_back(scaling::make_prometheus_source(
        {.url =
             prometheus.ends_with('/') ? prometheus.substr(0, prometheus.size() - 1) : prometheus,
         .token_file =
             option_of(invocation, "--prometheus-token-file", facts.prometheus_token_file),
         .token = option_of(invocation, "--prometheus-token", facts.prometheus_token),
         .ca_path = option_of(invocation, "--prometheus-ca", facts.prometheus_ca),
         .insecure = invocation.options.contains("--prometheus-insecure"),
         .query_params = option_of(invocation, "--prometheus-query-params", "")},
        observer));
  } else if (!invocation.options.contains("--passes")) {
    return Error(
        Code::kInvalidArgument,
        "planner needs something to look at: --frontend URL, --prometheus URL or --passes; "
        "or --dry-run TRACE, --replay JOURNAL, --global");
  }
  return out;
}

}  // namespace

std::function<std::optional<scaling::FleetCount>()> count_by(discovery::Discovery& discovery) {
  return [&discovery]() -> std::optional<scaling::FleetCount> {
    scaling::FleetCount out;
    for (const discovery::InstanceRecord& record : discovery.list({})) {
      if (record.state != discovery::InstanceState::kReady || record.key.endpoint != "generate") {
        continue;
      }
      const bool prompts = record.model.handoff.role == inference::WorkerRole::kPrefill;
      ++(prompts ? out.prefill_ready : out.decode_ready);
      out.workers.insert(record.key.worker.value());
    }
    return out;
  };
}

PlannerServer::PlannerServer(scaling::PlannerService& planner, Clock& clock, Metrics& metrics)
    : api_({.metrics_prefix = "stator_planner_http"}, clock, metrics), shards_(1, clock, metrics) {
  api_.add("GET", "/planner", [&planner](const services::ServiceRequest&) {
    return services::ServiceReply{.status = 200, .body = planner.render_json()};
  });
  api_.add("GET", "/", [&planner](const services::ServiceRequest&) {
    return services::ServiceReply{
        .status = 200, .body = planner.render_html(), .content_type = "text/html; charset=utf-8"};
  });
  api_.add("GET", "/v1/min-endpoints", [&planner](const services::ServiceRequest&) {
    return services::ServiceReply{.status = 200, .body = render_min_endpoints(planner)};
  });
  api_.add("PATCH", "/v1/min-endpoints", [&planner](const services::ServiceRequest& request) {
    return patch_min_endpoints(planner, request.body);
  });
}

Status PlannerServer::open(const std::string& host, uint16_t port, Metrics& metrics) {
  net::HttpServerConfig http;
  http.host = host;
  http.port = port;
  http.body_bytes_max = kBodyBytesMax;
  http.connections_max = kConnectionsMax;
  http.budget_prefix = "planner_";
  net::HttpHandler* const handlers[] = {&api_};
  STATOR_TRY(servers_, net::HttpServer::listen_on_all(shards_, http, handlers, metrics));
  shards_.start();
  return {};
}

void PlannerServer::close() {
  if (!shards_.shard(0).run_and_wait([this] { servers_.clear(); })) {
    log::warn("planner", "too busy to close its connections in order");
  }
  shards_.stop();
}

namespace {

Result<scaling::ServiceConfig> read_service(const Invocation& invocation,
                                            const PlannerFileFacts& facts, const WarmUp& warm_up) {
  EngineLimits limits{.block_size = 64};
  double blocks = 16'384;
  STATOR_CHECK(read_number(invocation, "--block-size", 1.0, 65'536.0, limits.block_size));
  STATOR_CHECK(read_number(invocation, "--kv-blocks", 1.0, 1e9, blocks));
  limits.max_kv_tokens = blocks * limits.block_size;
  scaling::ServiceConfig config;
  STATOR_TRY(config.planner, read_planner_config(invocation, limits));
  config.advisory = invocation.options.contains("--advisory") ||
                    option_of(invocation, "--connector", "none") == "none";
  if (const std::string file = option_of(invocation, "--planner-config", ""); !file.empty()) {
    config.advisory = config.advisory || facts.advisory;
    STATOR_TRY(config.reports, read_planner_reports(file));
  }
  STATOR_CHECK(
      read_number(invocation, "--report-interval", 1e-4, 8760.0, config.reports.interval_hours));
  config.reports.folder = option_of(invocation, "--report-dir", config.reports.folder);
  config.timing = option_of(invocation, "--timing", "polynomial");
  config.observer = read_observer(invocation, config.planner, limits.block_size, facts);
  STATOR_CHECK(
      warm_up(option_of(invocation, "--warmup-trace", facts.warmup_trace), config.planner));
  config.journal = option_of(invocation, "--journal", "");
  config.learn_from_clients = invocation.options.contains("--learn");
  STATOR_CHECK(read_number<uint32_t>(invocation, "--draft-tokens", 0, 16, config.draft_tokens));
  return config;
}

}  // namespace

Status run_live_planner(Invocation& invocation, const WarmUp& warm_up) {
  const Settings& settings = invocation.settings;
  SystemClock clock;
  Metrics metrics;
  add_process_metrics(metrics);
  Signals signals;
  PlannerFileFacts facts;
  if (const std::string file = option_of(invocation, "--planner-config", ""); !file.empty()) {
    planner::PlannerConfig unused;
    STATOR_CHECK(read_planner_file(file, unused, &facts));
  }
  STATOR_TRY(scaling::ServiceConfig config, read_service(invocation, facts, warm_up));
  STATOR_TRY(const auto timing, perf::make_timing(config.timing, {}), "--timing");
  scaling::ServiceParts parts{.timing = timing.get()};
  STATOR_TRY(parts.sources, open_sources(invocation, config.observer, facts));
  STATOR_TRY(const Connected connected, connect(invocation, clock, metrics));
  parts.connector = connected.connector.get();
  std::unique_ptr<discovery::Discovery> discovery;
  if (settings.discovery != "memory") {
    STATOR_TRY(discovery, open_discovery(settings, clock, metrics));
    parts.count_fleet = count_by(*discovery);
  }
  uint32_t initial = 0;
  STATOR_CHECK(read_number<uint32_t>(invocation, "--workers", 0, 4096, initial));
  if (initial > 0 || connected.connector->name() == "process") {
    parts.initial.decode = std::max({1U, initial, config.planner.min_workers});
    if (connected.connector->name() == "process") {
      STATOR_CHECK(connected.connector->set(parts.initial, "start"));
    }
  }
  parts.wants_passes = invocation.options.contains("--passes");
  if (const std::string file = option_of(invocation, "--planner-config", ""); !file.empty()) {
    STATOR_TRY(auto plugins, read_planner_plugins(file));
    if (!plugins.empty()) {
      STATOR_TRY(parts.plugins, scaling::PluginHost::open(std::move(plugins), clock, metrics));
    }
  }
  STATOR_TRY(const auto broker, open_event_carrier(settings.events, "planner", metrics));
  if (parts.wants_passes && broker == nullptr) {
    return Error(Code::kInvalidArgument,
                 "--passes come over a broker: --events nats://HOST:PORT, the same as the "
                 "workers'");
  }
  const bool wants_passes = parts.wants_passes;
  STATOR_TRY(const auto planner,
             scaling::PlannerService::start(std::move(config), std::move(parts), clock, metrics));
  PassFeed feed(planner->board(), clock, metrics);
  std::unique_ptr<kv_events::NatsConnection::Subscription> passes;
  if (wants_passes) {
    STATOR_TRY(passes, broker->subscribe(kv_events::forward_passes_subject("*", "*"), feed));
  }
  const std::string host = option_of(invocation, "--host", "127.0.0.1");
  double port = kPortUsual;
  STATOR_CHECK(read_number(invocation, "--port", 0.0, 65'535.0, port));
  PlannerServer server(*planner, clock, metrics);
  STATOR_CHECK(server.open(host, static_cast<uint16_t>(port), metrics), "--port");
  const std::string url = fmt::format("http://{}:{}", net::host_in_url(host), server.port());
  log::info("planner", "ready", {{"url", url}, {"connector", connected.connector->name()}});
  announce(settings, "planner", fmt::format(R"("url":"{}","port":{})", url, server.port()));
  signals.wait();
  passes.reset();
  server.close();
  planner->stop();
  return {};
}

}  // namespace stator::app
