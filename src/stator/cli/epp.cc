// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stator/app/cluster_client.h"
#include "stator/app/run_server.h"
#include "stator/app/signals.h"
#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/core/hash.h"
#include "stator/core/log.h"
#include "stator/epp/endpoint_events.h"
#include "stator/epp/model_prompts.h"
#include "stator/epp/picker_server.h"
#include "stator/epp/pool_watch.h"
#include "stator/epp/replica_peers.h"
#include "stator/epp/server_scraper.h"
#include "stator/io/read_file.h"
#include "stator/io/replace_file.h"
#include "stator/kube/certificates.h"
#include "stator/kube/yaml.h"
#include "stator/kv_events/zmq_sources.h"
#include "stator/net/shard.h"
#include "stator/router/replicas/replica_hub.h"
#include "stator/services/zmq_feeds.h"

namespace stator::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFilePause = 1s;

/// Reads the file again when it changes; a broken file leaves the endpoints as they were.
class EndpointFile {
 public:
  EndpointFile(std::string path, epp::EndpointPool& pool) : path_(std::move(path)), pool_(pool) {}

  Status load() {
    STATOR_TRY(std::string text, io::read_file(path_), "--endpoints");
    if (text == text_) {
      return {};
    }
    STATOR_TRY(const auto documents, kube::parse_yaml(text, path_));
    STATOR_TRY(const auto endpoints,
               epp::read_endpoints(documents.empty() ? json::Value::array() : documents.front()),
               path_);
    if (!documents.empty()) {
      STATOR_TRY(auto objectives, epp::read_objectives(documents.front()), path_);
      pool_.set_objectives(std::move(objectives));
      STATOR_TRY(auto rewrites, epp::read_rewrites(documents.front()), path_);
      pool_.set_rewrites(std::move(rewrites));
    }
    text_ = std::move(text);
    pool_.set_endpoints(endpoints);
    log::info("epp", "endpoints read", {{"file", path_}, {"endpoints", endpoints.size()}});
    return {};
  }

  void reload() {
    if (const Status loaded = load(); !loaded && loaded.error().message() != last_error_) {
      last_error_ = loaded.error().message();
      log::warn("epp", last_error_);
    }
  }

 private:
  std::string path_;
  epp::EndpointPool& pool_;
  std::string text_ = "\x01";  // unlike any file
  std::string last_error_;
};

/// A certificate of its own for a picker that was given none: gateways encrypt, and trust the
/// cluster's network for the rest.
class OwnCertificate {
 public:
  OwnCertificate() = default;
  OwnCertificate(const OwnCertificate&) = delete;
  OwnCertificate& operator=(const OwnCertificate&) = delete;
  ~OwnCertificate() {
    if (!folder_.empty()) {
      std::error_code ignored;
      std::filesystem::remove_all(folder_, ignored);
    }
  }

  Result<std::string> make(const Clock& clock) {
    STATOR_CHECK(make_folder());
    STATOR_TRY(const kube::KeyPair authority, kube::make_authority("stator-epp", clock.wall_now()));
    STATOR_TRY(const kube::KeyPair server,
               kube::make_server_certificate(authority, {"stator-epp", "localhost", "127.0.0.1"},
                                             clock.wall_now(), std::chrono::hours(24 * 3650)));
    STATOR_CHECK(io::replace_file(folder_ + "/tls.key", server.key));
    STATOR_CHECK(io::replace_file(folder_ + "/tls.crt", server.certificate));
    return folder_;
  }

 private:
  /// Where temporary files go, or shared memory: containers have it though their root is read-only.
  Status make_folder() {
    std::error_code failed;
    for (const std::filesystem::path& parent :
         {std::filesystem::temp_directory_path(failed), std::filesystem::path("/dev/shm")}) {
      std::string pattern = (parent / "stator-epp-XXXXXX").string();
      if (!parent.empty() && ::mkdtemp(pattern.data()) != nullptr) {
        folder_ = pattern;
        return {};
      }
    }
    return Error(Code::kUnavailable,
                 "--secure-serving needs a folder for its certificate: set "
                 "TMPDIR to one that can be written, or --cert-path");
  }

  std::string folder_;
};

Status add_tls(const Invocation& invocation, const Clock& clock, OwnCertificate& own,
               epp::PickerServerConfig& config) {
  std::string folder = option_of(invocation, "--cert-path", "");
  if (!invocation.options.contains("--secure-serving") && folder.empty()) {
    return {};
  }
  if (folder.empty()) {
    STATOR_TRY(folder, own.make(clock));
  }
  STATOR_TRY(config.tls, net::ServerTls::load(folder + "/tls.crt", folder + "/tls.key", {}),
             "--cert-path");
  return {};
}

Result<epp::PickerServerConfig> read_config(const Invocation& invocation) {
  epp::PickerServerConfig config;
  config.host = option_of(invocation, "--host", config.host);
  STATOR_TRY(const int32_t port, app::port_option(invocation, "--grpc-port", 9002));
  STATOR_TRY(config.health_port, app::port_option(invocation, "--grpc-health-port", 9003));
  STATOR_TRY(
      const int64_t body_max,
      app::whole_option(invocation, "--body-bytes-max",
                        static_cast<int64_t>(config.stream.body_bytes_max), int64_t{1} << 30));
  if (port < 0) {
    return Error(Code::kInvalidArgument, "--grpc-port: the picker needs a port");
  }
  config.port = static_cast<uint16_t>(port);
  config.stream.body_bytes_max = static_cast<size_t>(body_max);
  config.stream.test_mode = invocation.options.contains("--test-mode");
  config.pool_name = option_of(invocation, "--pool-name", "");
  STATOR_TRY(const int64_t in_flight,
             app::whole_option(invocation, "--in-flight-max", 0, int64_t{1} << 30));
  config.in_flight_max = static_cast<size_t>(in_flight);
  return config;
}

Result<epp::PoolConfig> read_pool_config(const Invocation& invocation) {
  epp::PoolConfig config;
  STATOR_TRY(const int64_t block, app::whole_option(invocation, "--kv-block-size", 16, 1 << 16));
  STATOR_TRY(const int32_t port, app::port_option(invocation, "--kv-event-port", 0));
  STATOR_TRY(const int64_t queue,
             app::whole_option(invocation, "--queue-depth-threshold", 5, 1 << 20));
  STATOR_TRY(const int64_t usage,
             app::whole_option(invocation, "--kv-cache-util-threshold", 80, 100));
  config.queue_max = static_cast<double>(queue);
  config.cache_usage_max = static_cast<double>(usage) / 100;
  config.block_size = static_cast<uint32_t>(std::max<int64_t>(block, 1));
  config.event_port = static_cast<uint16_t>(std::max<int32_t>(port, 0));
  config.follows_events = config.event_port != 0 || invocation.options.contains("--kv-events");
  if (config.follows_events && option_of(invocation, "--model", "").empty()) {
    return Error(
        Code::kInvalidArgument,
        "KV events name blocks of tokens: say with --model FOLDER whose tokenizer and chat "
        "template count them");
  }
  return config;
}

/// "500ms", "1s", "2m" or milliseconds; 0: never.
Result<Duration> read_interval(const Invocation& invocation) {
  const std::string text = option_of(invocation, "--refresh-metrics-interval", "500ms");
  int64_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, text.data() + text.size());
  const int64_t milliseconds = unit == "s" ? 1000 : unit == "m" ? 60'000 : 1;
  const bool is_known = unit.empty() || unit == "ms" || unit == "s" || unit == "m";
  if (failed != std::errc() || !is_known || number < 0 || number > 3600) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--refresh-metrics-interval: '{}' is no time like 500ms or 1s, up to "
                             "3600 of a unit; 0 = never",
                             text));
  }
  return std::chrono::milliseconds(number * milliseconds);
}

Result<std::unique_ptr<epp::ServerScraper>> scrape(const Invocation& invocation,
                                                   epp::EndpointPool& pool, Clock& clock,
                                                   Metrics& metrics) {
  epp::ScrapeConfig config;
  STATOR_TRY(config.interval, read_interval(invocation));
  config.path = option_of(invocation, "--model-server-metrics-path", config.path);
  STATOR_TRY(const int32_t port, app::port_option(invocation, "--model-server-metrics-port", 0));
  config.port = static_cast<uint16_t>(std::max<int32_t>(port, 0));
  if (!config.path.starts_with('/')) {
    return Error(Code::kInvalidArgument,
                 "--model-server-metrics-path must begin with '/', as /metrics");
  }
  if (config.interval == Duration::zero()) {
    return std::unique_ptr<epp::ServerScraper>();
  }
  return epp::start_scraping(std::move(config), pool, clock, metrics);
}

/// What a picker hears of its endpoints' caches, and of its replicas' bookings.
class PickerEars {
 public:
  PickerEars() = default;
  PickerEars(const PickerEars&) = delete;
  PickerEars& operator=(const PickerEars&) = delete;
  ~PickerEars() { stop(); }

  /// What it stands on; `client` is null without a cluster.
  struct Ground {
    kube::Client* client;
    const Clock& clock;
    Metrics& metrics;
  };
  Status open(const Invocation& invocation, const epp::PoolConfig& config, epp::EndpointPool& pool,
              const Ground& ground) {
    STATOR_CHECK(open_replicas(invocation, pool, ground));
    if (!config.follows_events) {
      return {};
    }
    STATOR_TRY(const int32_t replay, app::port_option(invocation, "--kv-replay-port", 0));
    STATOR_TRY(sources_, kv_events::ZmqSources::start(ground.clock, ground.metrics));
    feeds_ = services::make_zmq_feeds(*sources_, ground.clock, ground.metrics);
    pool_ = &pool;
    pool.listen_by(epp::follow_endpoints(*feeds_, pool, config.block_size,
                                         static_cast<uint16_t>(std::max<int32_t>(replay, 0))));
    return {};
  }

  /// Before what it tells goes.
  void stop() {
    if (hub_ != nullptr) {
      hub_->stop();
    }
    if (pool_ != nullptr) {
      pool_->listen_by(nullptr);  // ends the subscriptions
    }
  }

 private:
  Status open_replicas(const Invocation& invocation, epp::EndpointPool& pool,
                       const Ground& ground) {
    const std::string service = option_of(invocation, "--replica-service", "");
    STATOR_TRY(const int32_t port,
               app::port_option(invocation, "--replica-port", service.empty() ? -1 : 9010));
    if (port < 0) {
      return {};
    }
    if (!service.empty() && ground.client == nullptr) {
      return Error(
          Code::kInvalidArgument,
          "--replica-service is looked up in a cluster: name its pool with --pool-name, or "
          "the other pickers with --replica-peers");
    }
    router::ReplicaConfig config;
    config.enabled = true;
    config.port = static_cast<uint16_t>(port);
    config.host =
        option_of(invocation, "--replica-host", app::read_env("POD_IP").value_or(config.host));
    hub_ = router::ReplicaHub::create(config, std::nullopt, ground.clock, ground.metrics);
    pool.announce_to(hub_->announcer("pool"));
    STATOR_CHECK(hub_->listen(), "--replica-port");
    if (!service.empty()) {
      service_ = epp::watch_replicas(
          *ground.client,
          {option_of(invocation, "--pool-namespace", ground.client->space()), service});
    }
    std::vector<router::ReplicaHub::Peer> peers;
    std::string_view list = invocation.options.contains("--replica-peers")
                                ? std::string_view(invocation.options.at("--replica-peers"))
                                : std::string_view();
    while (!list.empty()) {
      const size_t comma = std::min(list.find(','), list.size());
      const std::string address(list.substr(0, comma));
      STATOR_CHECK(services::check_endpoint("tcp://" + address), "--replica-peers");
      if (address != hub_->address()) {
        peers.push_back({.key = xxh3_64(address) | 1, .address = address});
      }
      list.remove_prefix(std::min(comma + 1, list.size()));
    }
    hub_->start({.book =
                     [&pool](const router::ReplicaBooking& booking) {
                       return pool.book_for_replica(booking);
                     },
                 .peers = [this, peers] { return peers_now(peers); },
                 .on_stale = [&pool](bool stale) { pool.set_load_stale(stale); }});
    return {};
  }

  /// Those that were named, and those that the Service has now.
  std::vector<router::ReplicaHub::Peer> peers_now(std::vector<router::ReplicaHub::Peer> peers) {
    if (service_ == nullptr) {
      return peers;
    }
    for (std::string& address : service_->addresses()) {
      if (address != hub_->address()) {
        peers.push_back({.key = xxh3_64(address) | 1, .address = std::move(address)});
      }
    }
    return peers;
  }

  std::unique_ptr<epp::ReplicaPeers> service_;      // null: none is looked at
  epp::EndpointPool* pool_ = nullptr;               // null: it does not listen
  std::unique_ptr<kv_events::ZmqSources> sources_;  // null: nobody tells
  std::unique_ptr<services::EventFeeds> feeds_;
  std::unique_ptr<router::ReplicaHub> hub_;  // null: alone
};

/// Ends a client's requests before what waits for them goes, on the way out after an error, too.
class StopsFirst {
 public:
  explicit StopsFirst(kube::Client* client) : client_(client) {}
  StopsFirst(const StopsFirst&) = delete;
  StopsFirst& operator=(const StopsFirst&) = delete;
  ~StopsFirst() {
    if (client_ != nullptr) {
      client_->stop();
    }
  }

 private:
  kube::Client* client_;
};

void say_ready(const Invocation& invocation, const std::string& host,
               const epp::PickerServer& server) {
  log::info("epp", "listening", {{"port", server.port()}, {"health_port", server.health_port()}});
  if (invocation.settings.announce) {
    app::announce(
        invocation.settings, "epp",
        fmt::format(R"("port":{},"grpc_health_port":{})", server.port(), server.health_port()));
  } else {
    print(fmt::format("stator epp listens on {}:{}\n", host, server.port()));
  }
}

}  // namespace

Status run_epp(Invocation& invocation) {
  Signals signals;
  SystemClock clock;
  Metrics metrics;
  const std::string file = option_of(invocation, "--endpoints", "");
  const std::string pool_name = option_of(invocation, "--pool-name", "");
  if (file.empty() == pool_name.empty()) {
    return Error(Code::kInvalidArgument,
                 "name a pool (--pool-name) or a file with endpoints (--endpoints)");
  }
  STATOR_TRY(epp::PickerServerConfig config, read_config(invocation));
  OwnCertificate certificate;
  STATOR_CHECK(add_tls(invocation, clock, certificate, config));
  STATOR_TRY(const int32_t health_port, app::port_option(invocation, "--health-port", -1));
  STATOR_TRY(const int64_t drain, app::whole_option(invocation, "--drain-seconds", 5, 3600));
  STATOR_TRY(const epp::PoolConfig pool_config, read_pool_config(invocation));
  STATOR_TRY(auto pool, epp::EndpointPool::create(clock, metrics, pool_config));
  if (const std::string model = option_of(invocation, "--model", ""); !model.empty()) {
    STATOR_TRY(config.stream.prompts,
               epp::make_model_prompts(model, pool_config.block_size, clock, metrics), "--model");
  }
  std::unique_ptr<kube::Client> client;
  if (file.empty()) {
    STATOR_TRY(client, app::make_cluster_client(invocation, "stator-epp", clock, metrics));
  }
  std::unique_ptr<epp::PoolWatch> watch;
  PickerEars ears;
  const StopsFirst stops_first(client.get());
  STATOR_CHECK(ears.open(invocation, pool_config, *pool, {client.get(), clock, metrics}));
  EndpointFile endpoints(file, *pool);
  if (!file.empty()) {
    STATOR_CHECK(endpoints.load());
  } else {
    watch = epp::watch_pool(
        *client, {option_of(invocation, "--pool-namespace", client->space()), pool_name}, *pool);
  }
  STATOR_TRY(auto scraper, scrape(invocation, *pool, clock, metrics));
  net::ShardSet shards(1, clock, metrics);
  shards.start();
  STATOR_TRY(auto server, epp::PickerServer::listen(config, *pool, shards.shard(0), metrics));
  STATOR_TRY(const auto health,
             app::start_health_server(
                 health_port, [&pool] { return pool->has_synced(); }, clock, metrics));
  say_ready(invocation, config.host, *server);
  while (!signals.wait_for(kFilePause)) {
    if (!file.empty()) {
      endpoints.reload();
    }
  }
  server->drain();
  if (!signals.interactive()) {
    signals.wait_for(std::chrono::seconds(drain));  // until gateways have heard
  }
  server->stop(100s);
  server.reset();
  scraper.reset();
  ears.stop();
  if (client != nullptr) {
    client->stop();
    watch.reset();
  }
  shards.stop();
  return {};
}

}  // namespace stator::cli
