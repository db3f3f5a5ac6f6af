// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stator/app/cluster_client.h"
#include "stator/app/option_number.h"
#include "stator/app/process_metrics.h"
#include "stator/app/run_server.h"
#include "stator/app/signals.h"
#include "stator/cli/planner_commands.h"
#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/json/value.h"
#include "stator/net/loopback.h"
#include "stator/scaling/global_planner.h"

namespace stator::cli {
namespace {

constexpr size_t kBodyBytesMax = 64UL << 10;

/// The pools and what decides about them. Requests come one at a time: each sees what the one
/// before did.
class GlobalService {
 public:
  GlobalService(scaling::GlobalConfig config, const Clock& clock, Metrics& metrics)
      : planner_(std::move(config)),
        clock_(clock),
        asked_(metrics.counter("stator_global_planner_requests_total", "changes asked for")),
        rejected_(metrics.counter("stator_global_planner_rejected_total", "of those, rejected")),
        failed_(
            metrics.counter("stator_global_planner_failed_total", "of those, not carried out")) {}

  Status open(const Invocation& invocation, Clock& clock, Metrics& metrics) {
    STATOR_CHECK(read_number<uint32_t>(invocation, "--prefill-gpus", 1, 1024, prefill_gpus_));
    STATOR_CHECK(read_number<uint32_t>(invocation, "--decode-gpus", 1, 1024, decode_gpus_));
    std::string pools = option_of(invocation, "--pool", "");
    while (!pools.empty()) {
      const std::string word = pools.substr(0, pools.find(','));
      pools.erase(0, word.size() + 1);
      STATOR_CHECK(add_pool(word, invocation, clock, metrics), "--pool");
    }
    if (pools_.empty()) {
      return Error(Code::kInvalidArgument, "--global needs --pool NAME=folder:DIR or =kubernetes");
    }
    return {};
  }

  Result<std::string> scale(std::string_view body) STATOR_EXCLUDES(mutex_) {
    STATOR_TRY(const scaling::ScaleRequest request, scaling::parse_scale_request(body));
    const MutexLock lock(mutex_);
    asked_.add();
    STATOR_TRY(std::vector<scaling::PoolNow> now, observe());
    scaling::GlobalVerdict verdict = planner_.decide(
        request, now, std::chrono::duration<double>(clock_.now().time_since_epoch()).count());
    for (const scaling::GlobalVerdict::Step& step : verdict.steps) {
      const Status done = pools_.at(step.pool)->set(step.targets, "global");
      if (!done) {  // what was done stays; the planners ask again at their next tick
        failed_.add();
        verdict.kind = scaling::GlobalVerdict::Kind::kError;
        verdict.message = fmt::format("pool {}: {}", step.pool, done.error().message());
        break;
      }
    }
    rejected_.add(verdict.kind == scaling::GlobalVerdict::Kind::kRejected ? 1 : 0);
    log::info("global-planner", verdict.message, {{"pool", request.pool()}});
    STATOR_TRY(now, observe());
    const auto own = std::ranges::find(now, request.pool(), &scaling::PoolNow::name);
    return scaling::render_json(verdict, own == now.end() ? scaling::PoolNow() : *own);
  }

  Result<std::string> status() STATOR_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    STATOR_TRY(const std::vector<scaling::PoolNow> now, observe());
    json::Value out = json::Value::object();
    json::Value& pools = out["pools"] = json::Value::array();
    int64_t total = 0;
    for (const scaling::PoolNow& pool : now) {
      total += pool.gpus();
      pools.push_back({{"name", pool.name},
                       {"prefill", pool.prefill},
                       {"decode", pool.decode},
                       {"gpus", pool.gpus()}});
    }
    out["total_gpus"] = total;
    out["max_total_gpus"] = planner_.config().max_total_gpus;
    out["min_total_gpus"] = planner_.config().min_total_gpus;
    out["intents"] = planner_.intents();
    return json::to_text(out);
  }

 private:
  Status add_pool(const std::string& word, const Invocation& invocation, Clock& clock,
                  Metrics& metrics) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string target = equals == std::string::npos ? "" : word.substr(equals + 1);
    constexpr std::string_view kFolder = "folder:", kEtcd = "etcd:";
    if (target.starts_with(kFolder)) {
      STATOR_TRY(auto store, scaling::open_folder_store(target.substr(kFolder.size())));
      pools_[name] = scaling::make_virtual_connector(std::move(store), {}, clock);
    } else if (target.starts_with(kEtcd)) {
      STATOR_TRY(const auto options, discovery::parse_etcd_url(option_of(invocation, "--etcd", "")),
                 "--etcd");
      STATOR_TRY(auto store, scaling::open_etcd_store(options, target.substr(kEtcd.size())),
                 "--etcd");
      pools_[name] = scaling::make_virtual_connector(std::move(store), {}, clock);
    } else if (target == "kubernetes") {
      if (cluster_ == nullptr) {
        STATOR_TRY(cluster_,
                   app::make_cluster_client(invocation, "stator-planner", clock, metrics));
      }
      const size_t slash = name.find('/');
      kube::ObjectName graph{cluster_->space(), name};
      if (slash != std::string::npos) {
        graph = {name.substr(0, slash), name.substr(slash + 1)};
      }
      pools_[name] = scaling::make_kube_connector(
          {.graph = std::move(graph), .prefill_component = {}, .decode_component = {}}, *cluster_);
    } else {
      return Error(Code::kInvalidArgument,
                   fmt::format("'{}' must be NAME=folder:DIR, NAME=etcd:NAMESPACE or "
                               "NAME=kubernetes",
                               word));
    }
    return {};
  }

  Result<std::vector<scaling::PoolNow>> observe() STATOR_REQUIRES(mutex_) {
    std::vector<scaling::PoolNow> out;
    for (const auto& [name, connector] : pools_) {
      STATOR_TRY(const scaling::PoolCounts counts, connector->counts(), name);
      out.push_back({.name = name,
                     .prefill = counts.wanted.prefill.value_or(counts.prefill_ready.value_or(0)),
                     .decode = counts.wanted.decode.value_or(counts.decode_ready.value_or(0)),
                     .gpus_per_prefill = prefill_gpus_,
                     .gpus_per_decode = decode_gpus_});
    }
    return out;
  }

  Mutex mutex_;
  scaling::GlobalPlanner planner_;
  const Clock& clock_;
  Counter asked_, rejected_, failed_;
  uint32_t prefill_gpus_ = 1, decode_gpus_ = 1;
  std::unique_ptr<kube::Client> cluster_;
  std::map<std::string, std::unique_ptr<scaling::Connector>, std::less<>> pools_;
};

Result<scaling::GlobalConfig> read_config(const Invocation& invocation) {
  scaling::GlobalConfig config;
  std::string names = option_of(invocation, "--managed-namespaces", "");
  while (!names.empty()) {
    const std::string name = names.substr(0, names.find(','));
    names.erase(0, name.size() + 1);
    config.managed_namespaces.insert(name);
  }
  STATOR_CHECK(read_number<int64_t>(invocation, "--max-total-gpus", -1, 1'000'000'000,
                                    config.max_total_gpus));
  STATOR_CHECK(read_number<int64_t>(invocation, "--min-total-gpus", -1, 1'000'000'000,
                                    config.min_total_gpus));
  STATOR_CHECK(read_number(invocation, "--intent-cache-ttl", 1.0, 86'400.0, config.intent_ttl_s));
  config.no_operation = invocation.options.contains("--no-operation");
  if (config.max_total_gpus >= 0 && config.min_total_gpus > config.max_total_gpus) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--min-total-gpus ({}) is above --max-total-gpus ({})",
                             config.min_total_gpus, config.max_total_gpus));
  }
  return config;
}

}  // namespace

Status run_global_planner(Invocation& invocation) {
  SystemClock clock;
  Metrics metrics;
  app::add_process_metrics(metrics);
  Signals signals;
  STATOR_TRY(scaling::GlobalConfig config, read_config(invocation));
  GlobalService service(std::move(config), clock, metrics);
  STATOR_CHECK(service.open(invocation, clock, metrics));
  // Its loop waits for stores and the API server: it serves nobody but the planners.
  services::ServiceApi api({.metrics_prefix = "stator_global_planner_http"}, clock, metrics);
  api.add("POST", "/v1/scale",
          [&](const services::ServiceRequest& request) -> Result<services::ServiceReply> {
            STATOR_TRY(std::string body, service.scale(request.body));
            return services::ServiceReply{.status = 200, .body = std::move(body)};
          });
  api.add("GET", "/planner",
          [&](const services::ServiceRequest&) -> Result<services::ServiceReply> {
            STATOR_TRY(std::string body, service.status());
            return services::ServiceReply{.status = 200, .body = std::move(body)};
          });
  net::ShardSet shards(1, clock, metrics);
  net::HttpServerConfig http;
  http.host = option_of(invocation, "--host", "127.0.0.1");
  uint32_t port = 9086;
  STATOR_CHECK(read_number<uint32_t>(invocation, "--port", 0, 65'535, port));
  http.port = static_cast<uint16_t>(port);
  http.body_bytes_max = kBodyBytesMax;
  net::HttpHandler* const handlers[] = {&api};
  STATOR_TRY(auto servers, net::HttpServer::listen_on_all(shards, http, handlers, metrics),
             "--port");
  shards.start();
  const uint16_t bound = servers.front()->port();
  log::info("global-planner", "ready", {{"host", http.host}, {"port", bound}});
  app::announce(
      invocation.settings, "global-planner",
      fmt::format(R"("url":"http://{}:{}","port":{})", net::host_in_url(http.host), bound, bound));
  signals.wait();
  if (!shards.shard(0).run_and_wait([&] { servers.clear(); })) {
    log::warn("global-planner", "too busy to close its connections in order");
  }
  shards.stop();
  return {};
}

}  // namespace stator::cli
