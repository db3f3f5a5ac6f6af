// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fault_sim/frontend_node.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "stator/core/assert.h"
#include "stator/lab/fault_sim/virtual_connector.h"
#include "stator/router/index/index_service.h"

namespace stator::fault_sim {

namespace {

// Workers that lost their leases together are all listed again after so long.
constexpr Duration kYoung = std::chrono::seconds(3);

frontend::ModelSources make_sources(std::shared_ptr<const frontend::ModelAssets> assets,
                                    VirtualReplicaHub* replicas) {
  frontend::ModelSources sources;
  sources.resolve_path = [](const std::string& path) { return Result<std::string>(path); };
  sources.load_assets = [assets = std::move(assets)](const std::string&, const std::string&)
      -> Result<std::shared_ptr<const frontend::ModelAssets>> { return assets; };
  if (replicas != nullptr) {
    sources.announcer = [replicas](const std::string& model) { return replicas->announcer(model); };
  }
  return sources;
}

std::unique_ptr<session::Connector> make_connector(const FrontendNode::Machine& machine,
                                                   Metrics& metrics) {
  auto streams = make_virtual_connector(machine.network, machine.node, metrics);
  return machine.plane == nullptr
             ? std::move(streams)
             : make_virtual_plane_connector(std::move(streams), *machine.plane, machine.node);
}

}  // namespace

FrontendNode::FrontendNode(Machine machine, const Settings& settings)
    : machine_(machine),
      config_(settings.config),
      replicas_(machine.replicas == nullptr
                    ? nullptr
                    : std::make_unique<VirtualReplicaHub>(*machine.replicas, machine.node,
                                                          settings.router.replicas)),
      catalog_(settings.router, make_sources(settings.assets, replicas_.get()),
               machine.time.clock(), metrics_, receipts_),
      fleet_(metrics_, Random::from_entropy()),
      compute_({.threads = 1}, machine.time.clock(), metrics_),
      encoder_(config_, machine.time.clock(), metrics_, nullptr),
      born_(machine.time.now()),
      discovery_(machine.store, machine.network, machine.time, machine.node),
      connector_(make_connector(machine, metrics_)),
      shard_(0, machine.time.clock(), metrics_) {
  STATOR_ASSERT(catalog_.preload(settings.card).has_value(), "the demo model can be served");
  machine_.time.attach(shard_);
  if (machine_.journals != nullptr) {
    journals_ =
        std::make_unique<VirtualJournalHub>(*machine_.journals, machine_.node, config_.journals);
  }
  service_ = std::make_unique<frontend::ShardService>(
      shard_, frontend::ShardEnvironment{.config = config_,
                                         .catalog = catalog_,
                                         .receipts = receipts_,
                                         .metrics = metrics_,
                                         .encoder = encoder_,
                                         .compute = compute_,
                                         .stage = stage_,
                                         .fleet = fleet_,
                                         .journals = journals_.get()});
  machine_.time.on_loop(shard_, [this] {
    session::WorkerPoolOptions options;
    options.kv_events = &catalog_;
    service_->start(std::move(options), discovery_, *connector_);
  });
  if (replicas_ != nullptr) {  // as ReplicaSync
    replicas_->start([this](const auto& booking) { return catalog_.book_for_replica(booking); },
                     [this](bool stale) {
                       for (const auto& model : catalog_.list_ready()) {
                         model->router->set_load_stale(stale);
                       }
                     });
  }
}

FrontendNode::~FrontendNode() {
  if (replicas_ != nullptr) {
    replicas_->stop();
  }
  machine_.time.on_loop(shard_, [this] {
    service_->stop();
    service_.reset();
  });
  journals_.reset();
  machine_.time.detach(shard_);
}

void FrontendNode::send(VirtualClient& client) {
  machine_.time.on_loop(shard_, [this, &client] { service_->on_request(client); });
}

void FrontendNode::leave(VirtualClient& client) {
  machine_.time.on_loop(shard_, [&client] { client.leave(); });
}

bool FrontendNode::ready() {
  const bool young = machine_.time.now() - born_ < kYoung;
  ready_ = (ready_ && !young) || catalog_.takes_work();
  return ready_;
}

std::vector<WorkerId> FrontendNode::listed() {
  std::vector<WorkerId> workers;
  for (const discovery::InstanceRecord& record : discovery_.list({})) {
    workers.push_back(record.key.worker);
  }
  std::ranges::sort(workers);
  return workers;
}

std::vector<WorkerId> FrontendNode::routable() {
  std::vector<WorkerId> workers;
  for (const auto& instance : catalog_.instances()) {
    workers.push_back(instance.worker);
  }
  return workers;
}

uint64_t FrontendNode::indexed_blocks() {
  uint64_t blocks = 0;
  for (const auto& model : catalog_.list_all()) {
    blocks += model->router->index().holder_blocks();
  }
  return blocks;
}

double FrontendNode::metric(std::string_view name) const {
  const std::string text = metrics_.render();
  double sum = 0;
  for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += name.size()) {
    const bool whole = (at == 0 || text[at - 1] == '\n') &&
                       (text[at + name.size()] == '{' || text[at + name.size()] == ' ');
    const size_t end = text.find('\n', at);
    const size_t space = text.rfind(' ', end);
    double value = 0;
    if (whole) {
      std::from_chars(text.data() + space + 1, text.data() + end, value);
    }
    sum += value;
  }
  return sum;
}

}  // namespace stator::fault_sim
