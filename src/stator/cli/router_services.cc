// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stator/app/discovered_workers.h"
#include "stator/app/event_carrier.h"
#include "stator/app/process_metrics.h"
#include "stator/app/run_server.h"
#include "stator/app/signals.h"
#include "stator/cli/command.h"
#include "stator/core/log.h"
#include "stator/net/http_client.h"
#include "stator/net/http_server.h"
#include "stator/net/loopback.h"
#include "stator/net/shard.h"
#include "stator/router/replicas/replica_hub.h"
#include "stator/services/indexer_api.h"
#include "stator/services/replica_endpoints.h"
#include "stator/services/selection.h"
#include "stator/services/slot_tracker.h"
#include "stator/services/zmq_feeds.h"

namespace stator::cli {
namespace {

using namespace std::chrono_literals;

// What gateways and engines of the reference system are configured with.
constexpr uint16_t kIndexerPort = 8090;
constexpr uint16_t kSlotsPort = 8091;
constexpr uint16_t kSelectPort = 8092;
constexpr size_t kBodyBytesMax = 8UL << 20;

enum class Service : uint8_t { kIndexer, kSlots, kSelect };

struct ServiceSettings {
  Service service = Service::kSelect;
  std::string host;
  uint16_t port = 0;
  uint32_t threads = 4;
  uint32_t block_size = 16;
  services::PartitionName partition;
  std::vector<std::string> peers;
  std::vector<std::pair<WorkerKey, std::string>> workers;
  std::optional<router::ReplicaConfig> replicas;  ///< none: on our own
  std::optional<net::TlsFiles> tls;               ///< none: plain
  std::vector<std::string> replica_peers;
  services::ServiceOptions api;
  services::ReplayCacheConfig replay;
};

Result<uint64_t> number(std::string_view text, std::string_view what, uint64_t max) {
  uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || value > max) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{}: '{}' is not a whole number from 0 to {}", what, text, max));
  }
  return value;
}

Result<uint64_t> number_option(const Invocation& invocation, std::string_view flag,
                               uint64_t fallback, uint64_t max) {
  const auto it = invocation.options.find(flag);
  return it == invocation.options.end() ? Result<uint64_t>(fallback)
                                        : number(it->second, flag, max);
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) {
      parts.emplace_back(text.substr(0, comma));
    }
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

Result<Service> chosen_service(const Invocation& invocation) {
  const std::string named = option_of(invocation, "--service", "");
  std::vector<Service> chosen;
  constexpr std::array<std::pair<std::string_view, Service>, 3> kNames = {
      {{"indexer", Service::kIndexer}, {"slots", Service::kSlots}, {"select", Service::kSelect}}};
  for (const auto& [name, service] : kNames) {
    if (named == name || invocation.options.contains("--" + std::string(name))) {
      chosen.push_back(service);
    }
  }
  if (chosen.size() != 1 ||
      (!named.empty() && named != "indexer" && named != "slots" && named != "select")) {
    return Error(Code::kInvalidArgument,
                 "choose one service: --indexer, --slots or --select (or --service NAME)");
  }
  return chosen.front();
}

/// "7=tcp://a:5557,8:1=tcp://b:5558"
Result<std::vector<std::pair<WorkerKey, std::string>>> parse_workers(std::string_view text) {
  std::vector<std::pair<WorkerKey, std::string>> workers;
  for (const std::string& part : split(text)) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) {
      return Error(Code::kInvalidArgument,
                   fmt::format("--workers: '{}' is not ID[:RANK]=ADDRESS", part));
    }
    const std::string_view name = std::string_view(part).substr(0, equals);
    const size_t colon = std::min(name.find(':'), name.size());
    STATOR_TRY(const uint64_t id, number(name.substr(0, colon), "--workers", UINT64_MAX));
    uint64_t rank = 0;
    if (colon < name.size()) {
      STATOR_TRY(rank, number(name.substr(colon + 1), "--workers", UINT32_MAX));
    }
    workers.emplace_back(WorkerKey{WorkerId(id), static_cast<uint32_t>(rank)},
                         part.substr(equals + 1));
  }
  return workers;
}

Result<ServiceSettings> read_settings(const Invocation& invocation) {
  ServiceSettings settings;
  STATOR_TRY(settings.service, chosen_service(invocation));
  constexpr std::array kPorts = {kIndexerPort, kSlotsPort, kSelectPort};
  constexpr std::array kPrefixes = {"dynamo_kvindexer", "dynamo_slot_tracker", "dynamo_selection"};
  const auto row = static_cast<size_t>(settings.service);
  STATOR_TRY(const uint64_t port, number_option(invocation, "--port", kPorts[row], 65535));
  STATOR_TRY(const uint64_t threads, number_option(invocation, "--threads", 4, 256));
  STATOR_TRY(const uint64_t block_size, number_option(invocation, "--block-size", 16, 1 << 20));
  STATOR_TRY(const uint64_t entries,
             number_option(invocation, "--selection-cache-max-entries", 4096, 1 << 24));
  STATOR_TRY(const uint64_t bytes,
             number_option(invocation, "--selection-cache-max-bytes", 256ULL << 20, 1ULL << 40));
  STATOR_TRY(const uint64_t ttl,
             number_option(invocation, "--selection-cache-ttl-secs", 120, 1 << 20));
  STATOR_TRY(settings.workers, parse_workers(option_of(invocation, "--workers", "")));
  if (threads == 0 || block_size == 0) {
    return Error(Code::kInvalidArgument, "--threads and --block-size must be at least 1");
  }
  settings.host = option_of(invocation, "--host", "127.0.0.1");
  settings.port = static_cast<uint16_t>(port);
  settings.threads = static_cast<uint32_t>(threads);
  settings.block_size = static_cast<uint32_t>(block_size);
  settings.partition = {option_of(invocation, "--model-name", "default"),
                        option_of(invocation, "--routing-group", "default")};
  const bool is_select = settings.service == Service::kSelect;
  settings.peers = split(option_of(invocation, is_select ? "--indexer-peers" : "--peers", ""));
  settings.api = {.metrics_prefix = kPrefixes[row],
                  .access_log = invocation.options.contains("--access-log"),
                  .trace_id_header = option_of(invocation, "--trace-id-header", "x-trace-id")};
  STATOR_TRY(settings.tls, invocation.settings.rpc.tls());
  settings.replica_peers = split(option_of(invocation, "--replica-sync-peers", ""));
  if (invocation.options.contains("--replica-sync-port") || !settings.replica_peers.empty()) {
    STATOR_TRY(const uint64_t sync_port,
               number_option(invocation, "--replica-sync-port", 0, 65535));
    settings.replicas = invocation.settings.router.replicas;
    settings.replicas->host = settings.host;
    settings.replicas->port = static_cast<uint16_t>(sync_port);
  }
  settings.replay = {.ttl = std::chrono::seconds(ttl),
                     .entries_max = static_cast<uint32_t>(entries),
                     .bytes_max = bytes};
  return settings;
}

/// Fills the indexer from the first peer that answers; without one it starts empty.
void recover_from_peers(services::Indexer& indexer, const std::vector<std::string>& peers,
                        Signals& signals) {
  constexpr Duration kLetListenersConnect = 1s;
  if (peers.empty() || signals.wait_for(kLetListenersConnect)) {
    return;
  }
  for (const std::string& peer : peers) {
    const auto answer =
        net::http_request({.method = "GET", .url = peer + "/dump"}, {.timeout = 10s});
    if (!answer || answer->status != 200) {
      log::warn("indexer", "peer has no dump for us", {{"peer", peer}});
      continue;
    }
    const auto taken = services::apply_dump(indexer, answer->body);
    if (taken) {
      log::info("indexer", "recovered from a peer", {{"peer", peer}, {"events", *taken}});
      return;
    }
    log::warn("indexer", taken.error().message(), {{"peer", peer}});
  }
  log::warn("indexer", "no peer to recover from: starting empty");
}

/// One of the services with what it stands on.
class RouterServiceProcess {
 public:
  RouterServiceProcess(const Settings& settings, const ServiceSettings& service, Clock& clock,
                       Metrics& metrics, kv_events::ZmqSources& sources)
      : settings_(settings),
        service_(service),
        feeds_(services::make_zmq_feeds(sources, clock, metrics)),
        indexer_({.index = settings.router.index}, *feeds_, clock, metrics),
        slots_({}, clock, metrics),
        selection_({.router = settings.router, .replay = service.replay}, indexer_, clock,
                   Random::from_entropy()),
        api_(service.api, clock, metrics),
        shards_(service.threads, clock, metrics) {
    if (service.replicas) {
      hub_ = router::ReplicaHub::create(*service.replicas, service.tls, clock, metrics);
      const auto announcer = [this](const std::string& name) { return hub_->announcer(name); };
      slots_.announce_to(announcer);
      selection_.announce_to(announcer);
    }
  }

  Status open(Metrics& metrics) {
    if (service_.service == Service::kIndexer) {
      add_indexer_endpoints(api_, indexer_, peers_);
      indexer_.hold();
      for (const auto& [worker, endpoint] : service_.workers) {
        STATOR_CHECK(indexer_.follow(service_.partition, {.worker = worker,
                                                          .endpoint = endpoint,
                                                          .block_size = service_.block_size}),
                     "--workers");
      }
      for (const std::string& peer : service_.peers) {
        STATOR_CHECK(peers_.add(peer), "--peers");
      }
    } else if (service_.service == Service::kSlots) {
      add_slot_endpoints(api_, slots_);
    } else {
      add_selection_endpoints(api_, selection_, indexer_);
    }
    STATOR_CHECK(open_replicas());
    const std::vector<net::HttpHandler*> handlers(service_.threads, &api_);
    net::HttpServerConfig http;
    http.host = service_.host;
    http.port = service_.port;
    http.body_bytes_max = kBodyBytesMax;
    STATOR_TRY(servers_, net::HttpServer::listen_on_all(shards_, http, handlers, metrics));
    return {};
  }

  /// Both outlive run(); null: workers are registered by hand.
  void run(Signals& signals, discovery::Discovery* discovery, session::Connector* connector) {
    recover_from_peers(indexer_, service_.peers, signals);
    indexer_.release();
    shards_.start();
    std::unique_ptr<app::DiscoveredWorkers> discovered;
    on_first_shard([&] {
      if (discovery != nullptr) {
        discovered = std::make_unique<app::DiscoveredWorkers>(
            indexer_, service_.service == Service::kSelect ? &selection_ : nullptr,
            shards_.shard(0), *connector);
        discovered->start(*discovery);
      }
    });
    const uint16_t port = servers_.front()->port();
    constexpr std::array<std::string_view, 3> kRoles = {"indexer", "slots", "select"};
    const std::string_view role = kRoles[static_cast<size_t>(service_.service)];
    log::info(role, "ready", {{"host", service_.host}, {"port", port}});
    if (!net::is_loopback_host(service_.host)) {
      log::warn(role,
                "this service asks nobody who they are: whoever reaches its port may register "
                "workers and book on them; let only gateways and engines reach it",
                {{"host", service_.host}});
    }
    app::announce(settings_, role,
                  fmt::format(R"("url":"http://127.0.0.1:{}","port":{},"replica_sync":"{}")", port,
                              port, hub_ == nullptr ? "" : "tcp://" + hub_->address()));
    signals.wait();
    on_first_shard([&] { discovered.reset(); });
    if (hub_ != nullptr) {
      hub_->stop();
    }
    for (uint32_t i = 0; i < shards_.count(); ++i) {
      if (!shards_.shard(i).run_and_wait([this, i] { servers_[i].reset(); })) {
        log::warn(role, "a shard was too busy to close its connections in order");
      }
    }
    shards_.stop();
  }

 private:
  void on_first_shard(const std::function<void()>& task) {
    if (!shards_.shard(0).run_and_wait([&] { task(); })) {
      log::warn("router", "a shard is too busy to look for workers");
    }
  }

  Status open_replicas() {
    if (service_.service == Service::kIndexer) {
      return {};
    }
    add_replica_endpoints(api_, replica_peers_, hub_ != nullptr);
    for (const std::string& peer : service_.replica_peers) {
      STATOR_CHECK(services::check_endpoint(peer), "--replica-sync-peers");
      STATOR_CHECK(replica_peers_.add(peer), "--replica-sync-peers");
    }
    if (hub_ == nullptr) {
      return {};
    }
    if (const Status reach = settings_.rpc.check_reach("--host", service_.host); !reach) {
      log::warn("router", "replicas are asked without TLS", {{"reason", reach.error().message()}});
    }
    STATOR_CHECK(hub_->listen(), "--replica-sync-port");
    const bool is_slots = service_.service == Service::kSlots;
    hub_->start({.book =
                     [this, is_slots](const router::ReplicaBooking& booking) {
                       return is_slots ? slots_.book_for_replica(booking)
                                       : selection_.book_for_replica(booking);
                     },
                 .peers = [this] { return services::replica_peers(replica_peers_); },
                 .on_stale = {}});
    return {};
  }

  const Settings& settings_;
  const ServiceSettings& service_;
  std::unique_ptr<services::EventFeeds> feeds_;
  services::Indexer indexer_;
  services::PeerList peers_;
  services::PeerList replica_peers_{{"tcp://"}};
  services::SlotTracker slots_;
  services::SelectionService selection_;
  services::ServiceApi api_;
  std::unique_ptr<router::ReplicaHub> hub_;  // null: on our own
  net::ShardSet shards_;
  std::vector<std::unique_ptr<net::HttpServer>> servers_;
};

}  // namespace

Status run_router(Invocation& invocation) {
  STATOR_TRY(const ServiceSettings service, read_settings(invocation));
  SystemClock clock;
  Metrics metrics;
  app::add_process_metrics(metrics);
  Signals signals;
  STATOR_TRY(const auto sources, kv_events::ZmqSources::start(clock, metrics));
  STATOR_TRY(const auto broker,
             app::open_event_carrier(invocation.settings.events, "router", metrics));
  RouterServiceProcess process(invocation.settings, service, clock, metrics, *sources);
  std::unique_ptr<discovery::Discovery> discovery;
  std::unique_ptr<session::Connector> connector;
  if (invocation.settings.discovery != "memory" && service.service != Service::kSlots) {
    STATOR_TRY(discovery, app::open_discovery(invocation.settings, clock, metrics));
    session::GrpcOptions grpc{.tls = service.tls, .client_name = "router"};
    STATOR_TRY(auto sessions, session::make_grpc_connector(std::move(grpc), metrics));
    STATOR_TRY(connector, app::carry_events(invocation.settings.events, std::move(sessions),
                                            broker.get(), clock, metrics));
  }
  STATOR_CHECK(process.open(metrics));
  process.run(signals, discovery.get(), connector.get());
  return {};
}

}  // namespace stator::cli
