// SPDX-License-Identifier: Apache-2.0
#include "stator/app/run_server.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <filesystem>

#include "stator/app/histogram_buckets.h"
#include "stator/app/terminal.h"
#include "stator/app/version.h"
#include "stator/app/worker_host.h"
#include "stator/core/credentials.h"
#include "stator/core/log.h"
#include "stator/discovery/etcd_discovery.h"
#include "stator/discovery/file_discovery.h"
#include "stator/discovery/kube_discovery.h"
#include "stator/discovery/memory_discovery.h"
#include "stator/discovery/static_discovery.h"
#include "stator/frontend/remote_router.h"
#include "stator/frontend/shared_cache.h"
#include "stator/io/read_file.h"
#include "stator/net/loopback.h"

namespace stator::app {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kFilePrefix = "file:";
constexpr std::string_view kStaticPrefix = "static:";
constexpr std::string_view kEtcdPrefix = "etcd";  // and etcds
constexpr std::string_view kKubernetesPrefix = "kubernetes:";
constexpr Duration kPoll = 20ms;

/// What a pod is called: by the downward API's files, which are right in a restored process, too,
/// else by its environment.
std::string pod_fact(std::string_view file, std::string_view variable) {
  if (const auto text = io::read_file(fmt::format("/etc/podinfo/{}", file))) {
    const std::string_view word(*text);
    return std::string(word.substr(0, word.find_first_of(" \t\r\n")));
  }
  return read_env(std::string(variable)).value_or("");
}

/// In a pod by its service account, elsewhere by the file that KUBECONFIG names.
Result<discovery::KubeDiscoveryOptions> kube_discovery_options(std::string space) {
  discovery::KubeDiscoveryOptions options;
  options.client.agent = "stator-discovery";
  if (const auto file = read_env("KUBECONFIG"); file && !file->empty()) {
    STATOR_TRY(options.client.access, kube::read_kubeconfig(*file));
  } else {
    STATOR_TRY(options.client.access,
               kube::read_in_cluster(read_env("KUBERNETES_SERVICE_HOST").value_or(""),
                                     read_env("KUBERNETES_SERVICE_PORT").value_or("")));
  }
  options.pod_name = pod_fact("pod_name", "POD_NAME");
  options.pod_uid = pod_fact("pod_uid", "POD_UID");
  options.space = space.empty() ? options.client.access.space : std::move(space);
  return options;
}

/// A long prompt needs a megabyte or two while it is prepared. What is given back stays with
/// the process, up to so much per thread: else each such prompt pays for the kernel's clean pages.
void keep_freed_memory() {
  constexpr int kLargeBytes = 1 << 20;  // from here on a mapping of its own
  constexpr int kKeptBytes = 4 << 20;
  mallopt(M_MMAP_THRESHOLD, kLargeBytes);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
}

/// Once per start, when anybody on the network may use what is served.
void warn_of_open_port(const Settings& settings) {
  const auto& http = settings.frontend.http;
  if (settings.access.required() || net::is_loopback_host(http.host) ||
      !http.tls_client_ca_path.empty()) {
    return;
  }
  log::warn("access",
            "ANYBODY who reaches this port may use it: give --api-keys FILE (`stator key new`), "
            "or --host 127.0.0.1 if only this machine is to",
            {{"listens_on", fmt::format("{}:{}", net::host_in_url(http.host), http.port)}});
}

}  // namespace

Result<std::unique_ptr<discovery::Discovery>> open_discovery(const Settings& settings,
                                                             const Clock& clock, Metrics& metrics,
                                                             bool is_frontend) {
  if (settings.discovery == "memory") {
    return discovery::make_memory_discovery(metrics);
  }
  if (settings.discovery.starts_with(kFilePrefix) &&
      settings.discovery.size() > kFilePrefix.size()) {
    return discovery::open_file_discovery(
        {.root = settings.discovery.substr(kFilePrefix.size()), .lease_ttl = settings.lease_ttl},
        clock, metrics);
  }
  if (settings.discovery.starts_with(kEtcdPrefix)) {
    STATOR_TRY(const discovery::EtcdOptions address, discovery::parse_etcd_url(settings.discovery),
               "discovery.backend (flag --discovery)");
    discovery::EtcdOptions options = settings.etcd;
    options.endpoints = address.endpoints;
    options.root = address.root;
    options.tls = address.tls;
    options.lease_ttl = settings.lease_ttl;
    return discovery::open_etcd_discovery(std::move(options), clock, metrics);
  }
  if (settings.discovery.starts_with(kKubernetesPrefix)) {
    STATOR_TRY(auto options,
               kube_discovery_options(settings.discovery.substr(kKubernetesPrefix.size())),
               "discovery.backend (flag --discovery)");
    options.marks_routable = is_frontend;
    return discovery::open_kube_discovery(std::move(options), clock, metrics);
  }
  if (settings.discovery == "static" || settings.discovery.starts_with(kStaticPrefix)) {
    STATOR_TRY(auto options,
               discovery::parse_static_list(
                   std::string_view(settings.discovery)
                       .substr(std::min(settings.discovery.size(), kStaticPrefix.size()))),
               "discovery.backend (flag --discovery)");
    STATOR_TRY(options.tls, settings.rpc.tls());
    return discovery::open_static_discovery(std::move(options), metrics);
  }
  return Error(
      Code::kInvalidArgument,
      fmt::format("discovery.backend (flag --discovery): '{}' is neither memory, file:DIR, "
                  "etcd://host:port, kubernetes:NAMESPACE nor static:HOST:PORT,…",
                  hide_credentials(settings.discovery)));
}

Result<std::unique_ptr<FrontendProcess>> FrontendProcess::create(const Settings& settings,
                                                                 Clock& clock, Metrics& metrics) {
  keep_freed_memory();
  auto process = std::unique_ptr<FrontendProcess>(new FrontendProcess(settings));
  STATOR_CHECK(set_histogram_buckets(settings.frontend.histograms, settings.frontend.metrics_prefix,
                                     metrics));
  STATOR_TRY(auto families, frontend::load_families(settings.frontend.parser_spec));
  if (settings.router.replicas.enabled) {
    STATOR_CHECK(
        settings.rpc.check_reach("router.replica_sync_host", settings.router.replicas.host));
    STATOR_TRY(auto tls, settings.rpc.tls());
    process->replicas_ = std::make_unique<frontend::ReplicaSync>(settings.router.replicas,
                                                                 std::move(tls), clock, metrics);
  }
  if (settings.frontend.journals.enabled) {
    STATOR_CHECK(
        settings.rpc.check_reach("frontend.journal_host", settings.frontend.journals.host));
    STATOR_TRY(auto tls, settings.rpc.tls());
    process->journals_ =
        continuity::JournalHub::create(settings.frontend.journals, std::move(tls), clock, metrics);
  }
  frontend::ModelSources sources{
      .resolve_path =
          [&settings](const std::string& path) { return resolve_model_dir(path, settings.hub); },
      .load_assets = [&self = *process](const auto& dir,
                                        const auto& jinja) { return self.load_assets(dir, jinja); },
      .families = std::move(families)};
  if (process->replicas_ != nullptr) {
    sources.announcer = [&hub = *process->replicas_](const std::string& model) {
      return hub.announcer(model);
    };
  }
  if (!settings.router.url.empty() && !settings.router.shared_cache.empty()) {
    return Error(Code::kInvalidArgument,
                 "router.url and router.shared_cache exclude each other: give the shared cache to "
                 "the router that decides");
  }
  if (!settings.router.shared_cache.empty()) {
    STATOR_TRY(sources.advisor, frontend::SharedCache::start({settings.router.shared_cache,
                                                              settings.router.shared_cache_timeout},
                                                             clock, metrics));
  }
  if (!settings.router.url.empty()) {
    STATOR_TRY(sources.advisor,
               frontend::RemoteRouter::start({settings.router.url, settings.router.url_timeout},
                                             clock, metrics));
  }
  if (const auto& index = settings.router.index; !index.snapshot_path.empty()) {
    STATOR_TRY(process->snapshots_, frontend::IndexSnapshotService::open(index, clock, metrics));
    sources.restore_index = [&snapshots = *process->snapshots_](const auto& model) {
      snapshots.restore(model);
    };
  }
  STATOR_CHECK(process->open_entrance(clock, metrics));
  process->catalog_ = std::make_unique<frontend::ModelCatalog>(settings.router, std::move(sources),
                                                               clock, metrics, process->receipts_);
  process->shards_ = std::make_unique<net::ShardSet>(
      frontend::resolve_shard_count(settings.frontend.shards), clock, metrics);
  STATOR_TRY(
      process->frontend_,
      frontend::Frontend::create(settings.frontend, *process->shards_,
                                 {.catalog = *process->catalog_,
                                  .receipts = process->receipts_,
                                  .metrics = metrics,
                                  .journals = process->journals_.get(),
                                  .entrance = process->entrance_.get()},
                                 settings.port.share ? net::PortJoin::kYes : net::PortJoin::kNo));
  return process;
}

Status FrontendProcess::open_entrance(Clock& clock, Metrics& metrics) {
  const access::AccessConfig& config = settings_.access;
  const bool admin = settings_.admin.port >= 0;
  if (config.required() || !config.tenants.empty()) {
    STATOR_TRY(access_, access::AccessService::start(config, clock, metrics));
  }
  telemetry::TelemetryConfig telemetry = settings_.telemetry;
  telemetry.trace.version = version();
  if (telemetry::Telemetry::wanted(telemetry, admin)) {
    STATOR_TRY(telemetry_, telemetry::Telemetry::start(telemetry, admin, clock, metrics));
  }
  entrance_ = std::make_unique<frontend::Entrance>(settings_.frontend, access_.get(), admin,
                                                   metrics, telemetry_.get());
  return {};
}

Result<std::shared_ptr<const frontend::ModelAssets>> FrontendProcess::load_assets(
    const std::string& dir, const std::string& chat_template) const {
  std::error_code ignored;
  // Those are of this process's own workers, who have the same template.
  if (known_assets_ != nullptr && std::filesystem::equivalent(dir, known_dir_, ignored)) {
    return known_assets_;
  }
  return frontend::load_model_assets(dir, chat_template);
}

FrontendProcess::~FrontendProcess() {
  if (replicas_ != nullptr) {
    replicas_->stop();
  }
  if (snapshots_ != nullptr) {
    snapshots_->stop();
  }
  if (frontend_ != nullptr) {
    frontend_->stop();
  }
  if (journals_ != nullptr) {
    journals_->stop();
  }
  frontend_.reset();
  if (shards_ != nullptr) {
    shards_->stop();
  }
}

Status FrontendProcess::start(discovery::Discovery& discovery, session::Connector& connector) {
  warn_of_open_port(settings_);
  if (replicas_ != nullptr) {
    STATOR_CHECK(replicas_->start(*catalog_, discovery));
  }
  if (journals_ != nullptr) {
    STATOR_CHECK(journals_->start(discovery));
  }
  if (snapshots_ != nullptr) {
    snapshots_->start([&catalog = *catalog_] { return catalog.list_all(); });
  }
  shards_->start();
  frontend_->start(discovery, connector);
  return {};
}

bool FrontendProcess::join_port(discovery::Discovery& discovery, Signals& signals) {
  if (!joined()) {
    return true;
  }
  log::info("frontend", "joining those who serve the port", {{"port", port()}});
  const auto reached = [&] {
    auto workers = discovery.list(frontend_->worker_query());
    std::erase_if(workers, [](const discovery::InstanceRecord& record) {
      return record.state != discovery::InstanceState::kReady;
    });
    return !workers.empty() && frontend_->can_serve(workers);
  };
  bool stopped = false;
  for (Duration waited{}; waited < settings_.port.join_wait && !stopped && !reached();
       waited += kPoll) {
    stopped = signals.wait_for(kPoll);
  }
  if (!stopped) {
    frontend_->accept();
  }
  return !stopped;
}

void FrontendProcess::drain_and_stop(Signals& signals) {
  // True when a signal cuts the wait short.
  const auto wait_while = [&signals](Duration limit, const auto& condition) {
    for (Duration waited{}; waited < limit && condition(); waited += kPoll) {
      if (signals.wait_for(kPoll)) {
        return true;
      }
    }
    return false;
  };
  log::info("frontend", "leaving: clients are sent elsewhere, running requests may finish",
            {{"active", frontend_->port().open_exchanges()},
             {"port_shared", frontend_->port().others_accept()}});
  const bool handed_over = frontend_->leave();
  const bool hurry = wait_while(
      signals.interactive() ? Duration{} : settings_.port.lame_duck,
      [this, handed_over] { return !handed_over || frontend_->port().connections() > 0; });
  frontend_->drain();
  if (!hurry) {
    wait_while(settings_.frontend.drain_timeout,
               [this] { return frontend_->port().connections() > 0; });
  }
  if (snapshots_ != nullptr) {
    snapshots_->stop();  // before the workers are given up
  }
  frontend_->stop();
  if (journals_ != nullptr) {
    journals_->stop();
  }
  if (replicas_ != nullptr) {
    replicas_->stop();
  }
  log::info("frontend", "stopped");
}

std::string FrontendProcess::url() const {
  const auto& http = settings_.frontend.http;
  const bool any = http.host == "0.0.0.0" || http.host == "::";
  return fmt::format("{}://{}:{}", http.tls_cert_path.empty() ? "http" : "https",
                     any ? "127.0.0.1" : net::host_in_url(http.host), port());
}

void announce(const Settings& settings, std::string_view role, std::string_view members) {
  if (settings.announce) {
    print(fmt::format("{{\"ready\":true,\"role\":\"{}\",{}}}\n", role, members));
  }
}

}  // namespace stator::app
