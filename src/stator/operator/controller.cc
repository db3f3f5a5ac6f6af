// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "stator/core/histogram_bounds.h"
#include "stator/core/log.h"
#include "stator/kube/base64.h"
#include "stator/kube/certificates.h"
#include "stator/kube/child_writer.h"
#include "stator/kube/informer.h"
#include "stator/kube/lease.h"
#include "stator/kube/work_queue.h"
#include "stator/net/thread.h"
#include "stator/operator/names.h"
#include "stator/operator/operator_metrics.h"
#include "stator/operator/reconcile.h"
#include "stator/operator/request.h"
#include "stator/operator/ssh_secret.h"
#include "stator/operator/status_pace.h"

namespace stator::op {
namespace {

using json::Value;
using namespace std::chrono_literals;

constexpr Duration kRenewInterval = 2s;
constexpr std::string_view kGraphKey = "graph";
constexpr std::string_view kComponentKey = "component";
constexpr std::string_view kRequestKey = "request";
constexpr std::string_view kLabelRequest = "dgdr.nvidia.com/name";

/// Kinds whose objects are kept, and which of them: all, or those with our label.
struct Kept {
  std::string_view kind;
  bool is_labelled;
};
constexpr std::array<Kept, 17> kKept = {{{"DynamoGraphDeployment", false},
                                         {"DynamoGraphDeploymentRequest", false},
                                         {"DynamoComponentDeployment", false},
                                         {"DynamoGraphDeploymentScalingAdapter", false},
                                         {"Deployment", true},
                                         {"LeaderWorkerSet", true},
                                         {"DynamoCheckpoint", false},
                                         {"PodCliqueSet", true},
                                         {"PodClique", true},
                                         {"PodCliqueScalingGroup", true},
                                         {"Service", true},
                                         {"ServiceAccount", true},
                                         {"Role", true},
                                         {"RoleBinding", true},
                                         {"ConfigMap", true},
                                         {"Ingress", true},
                                         {"PersistentVolumeClaim", true}}};

std::string make_key(std::string_view what, const kube::ObjectName& name) {
  return fmt::format("{}/{}/{}", what, name.space, name.name);
}

/// Kinds that operators of this family count by what they are at.
bool is_own_kind(std::string_view kind) {
  return kind.starts_with("Dynamo");
}

std::string_view kind_of_key(std::string_view key) {
  return key.starts_with(kGraphKey)       ? "DynamoGraphDeployment"
         : key.starts_with(kRequestKey)   ? "DynamoGraphDeploymentRequest"
         : key.starts_with(kComponentKey) ? "DynamoComponentDeployment"
                                          : "unknown";
}

std::string_view space_of_key(std::string_view key) {
  const size_t first = key.find('/') + 1;
  return key.substr(first, key.find('/', first) - first);
}

class OperatorController final : public Controller {
 public:
  OperatorController(kube::Client& client, ClusterFacts& facts, ControllerOptions options,
                     Clock& clock, Metrics& metrics, std::vector<Companion> companions)
      : client_(client),
        facts_(facts),
        writer_(client, "stator-operator"),
        options_(std::move(options)),
        clock_(clock),
        queue_(clock),
        lease_({.name = {options_.lease_space, options_.lease_name},
                .holder = options_.holder,
                .duration = options_.lease_duration,
                .renew_limit = options_.lease_duration * 2 / 3}),
        reconciles_(metrics.counter("stator_operator_reconcile_total", "Reconciliations done")),
        errors_(metrics.counter("stator_operator_reconcile_errors_total",
                                "Reconciliations that failed and come again")),
        seconds_(metrics.histogram("stator_operator_reconcile_duration_seconds",
                                   "Time of one reconciliation", kBounds)),
        dashboards_(metrics),
        companions_(std::move(companions)) {
    metrics.gauge_callback("stator_operator_queue_depth", "Objects that wait for reconciliation",
                           {}, [this] { return static_cast<double>(queue_.size()); });
  }

  ~OperatorController() override {
    stop();
    client_.stop();
    informers_.clear();
  }

  Status run() override {
    STATOR_CHECK(lead());
    if (stopping_.load()) {
      return {};
    }
    start_informers();
    if (!wait_for_copies()) {
      return {};
    }
    ready_.store(true);
    std::vector<std::shared_ptr<void>> beside;  // shared: see Companion
    for (const Companion& companion : companions_) {
      beside.push_back(companion());
    }
    std::vector<net::Thread> workers;
    for (uint32_t i = 0; i < options_.threads; ++i) {
      workers.emplace_back(fmt::format("reconcile-{}", i), [this] { work(); });
    }
    const Status outcome = keep_leading();
    queue_.stop();
    workers.clear();
    release();
    client_.stop();
    beside.clear();
    return outcome ? Status() : Status(outcome.error().clone());
  }

  void stop() override {
    stopping_.store(true);
    queue_.stop();
    const std::lock_guard lock(wake_mutex_);
    wake_.notify_all();
  }

  bool is_ready() const override { return ready_.load(); }

 private:
  static constexpr std::array<double, 8> kBounds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 10};

  bool wait(Duration time) {
    std::unique_lock lock(wake_mutex_);
    wake_.wait_for(lock, time, [&] { return stopping_.load(); });
    return !stopping_.load();
  }

  // -------------------------------------------------------------------------------- the lease

  /// One look at the lease, and the write it asks for.
  void try_lease() {
    const kube::Resource& resource = kube::resource_of("Lease");
    const kube::ObjectName name{options_.lease_space, options_.lease_name};
    auto stored = client_.get(resource, name);
    if (!stored && stored.error().code() != Code::kNotFound) {
      log::warn("operator", stored.error().message());
      return;
    }
    const Value lease = lease_.next(stored ? *stored : Value(), clock_.now(), clock_.wall_now());
    if (lease.is_null()) {
      return;
    }
    const auto written =
        stored ? client_.replace(resource, lease) : client_.create(resource, lease);
    if (written) {
      lease_.on_written(clock_.now());
    } else if (written.error().code() != Code::kAlreadyExists) {
      log::warn("operator", written.error().message());
    }
  }

  Status lead() {
    while (options_.elects && !stopping_.load()) {
      try_lease();
      if (lease_.leads(clock_.now())) {
        log::info("operator", "leading",
                  {{"lease", options_.lease_name}, {"holder", options_.holder}});
        return {};
      }
      wait(kRenewInterval);
    }
    return {};
  }

  Status keep_leading() {
    while (wait(kRenewInterval)) {
      if (!options_.elects) {
        continue;
      }
      try_lease();
      if (!lease_.leads(clock_.now())) {
        return Error(Code::kUnavailable, "the lease was lost: another operator leads");
      }
    }
    return {};
  }

  void release() {
    if (!options_.elects || !lease_.leads(clock_.now())) {
      return;
    }
    const kube::Resource& resource = kube::resource_of("Lease");
    if (const auto stored = client_.get(resource, {options_.lease_space, options_.lease_name})) {
      client_.replace(resource, lease_.released(*stored)).ignore("it ends by itself");
    }
  }

  // -------------------------------------------------------------------------------- the copies

  void start_informers() {
    for (const Kept& kept : kKept) {
      kube::Informer::Options options;
      options.selection.space = options_.space;
      if (kept.is_labelled) {
        options.selection.labels = kLabelGraph;
      }
      options.index_key = [](const Value& object) {
        return fmt::format("{}/{}", kube::name_of(object).space,
                           kube::label_of(object, kLabelGraph));
      };
      options.on_change = [this](const Value* before, const Value* after) {
        const Value& object = after == nullptr ? *before : *after;
        if (is_own_kind(object.text_at({"kind"}))) {
          dashboards_.on_object(object.text_at({"kind"}), kube::name_of(object), after);
        }
        on_change(object);
      };
      informers_.emplace(kept.kind, std::make_unique<kube::Informer>(
                                        client_, kube::resource_of(kept.kind), std::move(options)));
    }
  }

  bool wait_for_copies() {
    while (!std::ranges::all_of(informers_,
                                [](const auto& each) { return each.second->is_synced(); })) {
      if (!wait(50ms)) {
        return false;
      }
    }
    if (!informers_.at("DynamoGraphDeployment")->is_served()) {
      log::warn("operator",
                "the cluster does not serve DynamoGraphDeployments: stator operator crds | kubectl "
                "apply --server-side -f -");
    }
    return true;
  }

  void on_change(const Value& object) {
    const kube::ObjectName name = kube::name_of(object);
    if (shard_of(name.space, options_.shards) != options_.shard) {
      return;
    }
    const std::string_view kind = object.text_at({"kind"});
    if (kind == "DynamoGraphDeployment") {
      queue_.add(make_key(kGraphKey, name));
      if (const std::string_view request = kube::label_of(object, kLabelRequest);
          !request.empty()) {
        queue_.add(make_key(kRequestKey, {name.space, std::string(request)}));
      }
      return;
    }
    if (kind == "DynamoGraphDeploymentRequest") {
      queue_.add(make_key(kRequestKey, name));
      return;
    }
    if (kind == "DynamoComponentDeployment") {
      queue_.add(make_key(kComponentKey, name));
    }
    if (kind == "DynamoCheckpoint") {
      on_checkpoint(name);
    }
    const bool has_owner = add_owners(object);
    if (!has_owner && kind.starts_with("PodClique")) {
      queue_.add(
          make_key(kGraphKey, {name.space, std::string(kube::label_of(object, kLabelGraph))}));
    }
  }

  /// The graph or component that an object is of; false: of none.
  bool add_owners(const Value& object) {
    bool has_owner = false;
    for (const Value& owner : object.at("metadata").at("ownerReferences").elements()) {
      const std::string_view kind = owner.text_at({"kind"});
      if (kind == "DynamoGraphDeployment" || kind == "DynamoComponentDeployment") {
        has_owner = true;
        queue_.add(make_key(kind == "DynamoGraphDeployment" ? kGraphKey : kComponentKey,
                            {kube::name_of(object).space, std::string(owner.text_at({"name"}))}));
      }
    }
    return has_owner;
  }

  /// Graphs of its namespace that use a checkpoint: it may be another one's by name.
  void on_checkpoint(const kube::ObjectName& checkpoint) {
    const kube::Informer* graphs = informer("DynamoGraphDeployment");
    if (graphs == nullptr) {
      return;
    }
    for (const Value& graph : graphs->find(checkpoint.space, [&](const Value& each) {
           return json::to_text(each.at("status").at("checkpoints")).find(checkpoint.name) !=
                  std::string::npos;
         })) {
      queue_.add(make_key(kGraphKey, kube::name_of(graph)));
    }
  }

  const kube::Informer* informer(std::string_view kind) const {
    const auto it = informers_.find(kind);
    return it == informers_.end() ? nullptr : it->second.get();
  }

  // -------------------------------------------------------------------------------------- work

  void work() {
    while (const auto key = queue_.take()) {
      const TimePoint begin = clock_.now();
      const Status done = reconcile(*key);
      const Duration took = clock_.now() - begin;
      seconds_.observe(std::chrono::duration<double>(took).count());
      dashboards_.on_reconciled(kind_of_key(*key), space_of_key(*key), done, took);
      reconciles_.add();
      if (!done) {
        errors_.add();
        if (done.error().code() != Code::kCancelled &&
            done.error().code() != Code::kAlreadyExists) {
          log::warn("operator", done.error().message(), {{"object", *key}});
        }
      }
      // What the server refuses stays refused until something changes.
      queue_.done(*key, done.has_value() || done.error().code() == Code::kInvalidArgument);
    }
  }

  Status reconcile(const std::string& key) {
    const size_t first = key.find('/');
    const size_t second = key.find('/', first + 1);
    const kube::ObjectName name{key.substr(first + 1, second - first - 1), key.substr(second + 1)};
    return key.starts_with(kGraphKey)     ? reconcile_graph(name)
           : key.starts_with(kRequestKey) ? reconcile_request(name)
                                          : reconcile_component(name);
  }

  Status reconcile_request(const kube::ObjectName& name) {
    auto request = informer("DynamoGraphDeploymentRequest")->get(name);
    if (!request) {
      return {};
    }
    RequestView view{.request = std::move(*request),
                     .graph = std::nullopt,
                     .nodes = {},
                     .now = kube::rfc3339(clock_.wall_now())};
    const std::string_view graph = view.request.text_at({"status", "dgdName"});
    if (!graph.empty()) {
      // Not from the copy: what we have just made must not look deleted.
      auto found =
          client_.get(kube::resource_of("DynamoGraphDeployment"), {name.space, std::string(graph)});
      if (!found && found.error().code() != Code::kNotFound) {
        return found.error().clone();
      }
      if (found) {
        view.graph = std::move(*found);
      }
    }
    if (view.request.text_at({"status", "phase"}).empty()) {
      STATOR_TRY(const std::string version,
                 client_.list(kube::resource_of("Node"), {}, [&](Value node) -> Status {
                   view.nodes.push_back(std::move(node));
                   return {};
                 }));
    }
    const Status done = carry_out(view.request, plan_request(view));
    const bool refused = !done && (done.error().code() == Code::kInvalidArgument ||
                                   done.error().code() == Code::kPermissionDenied);
    if (!refused) {
      return done ? Status() : Status(done.error().clone());
    }
    return writer_.write_status(view.request,
                                refuse_request(view.request, done.error().message(), view.now));
  }

  Status reconcile_graph(const kube::ObjectName& name) {
    auto graph = informer("DynamoGraphDeployment")->get(name);
    if (!graph) {
      pace_.forget(make_key(kGraphKey, name));
      return {};
    }
    GraphView view{.graph = std::move(*graph), .now = kube::rfc3339(clock_.wall_now())};
    const std::string index = fmt::format("{}/{}", name.space, label_value(name.name));
    view.components = informer("DynamoComponentDeployment")->find_indexed(index);
    for (Value& component : view.components) {
      newest_.overlay(component);
    }
    view.adapters = informer("DynamoGraphDeploymentScalingAdapter")->find_indexed(index);
    for (const std::string_view kind : {"PodClique", "PodCliqueScalingGroup"}) {
      for (Value& clique : informer(kind)->find_indexed(index)) {
        view.cliques.push_back(std::move(clique));
      }
    }
    for (const Component& component : Graph(view.graph, {}).components()) {
      if (component.spec().find_at({"experimental", "checkpoint"}) != nullptr) {
        view.checkpoints =
            informer("DynamoCheckpoint")->find(name.space, [](const Value&) { return true; });
        break;
      }
    }
    view.set =
        informer("PodCliqueSet")->get({name.space, shortened(dns_name(name.name), kGroveNameMax)});
    return carry_out(view.graph, plan_graph(view, facts_.environment()));
  }

  Status reconcile_component(const kube::ObjectName& name) {
    const auto component = informer("DynamoComponentDeployment")->get(name);
    if (!component) {
      newest_.forget(name.to_string());
      pace_.forget(make_key(kComponentKey, name));
      return {};
    }
    ComponentView view{.component = *component, .now = kube::rfc3339(clock_.wall_now())};
    newest_.overlay(view.component);
    view.workload = informer("Deployment")->get(name);
    if (!view.workload) {
      view.workload = informer("LeaderWorkerSet")->get({name.space, name.name + "-0"});
    }
    const Plan plan = plan_component(view, facts_.environment());
    STATOR_CHECK(carry_out(*component, plan));
    if (plan.status.is_object() && newest_.remember(*component, plan.status)) {
      add_owners(*component);  // the graph reads it here: the API server may get it later
    }
    return {};
  }

  Status carry_out(const Value& object, const Plan& plan) {
    const kube::ObjectName name = kube::name_of(object);
    const kube::Resource& resource = kube::resource_of(object.text_at({"kind"}));
    if (plan.patch) {
      STATOR_TRY(const Value patched, client_.merge_patch(resource, name, *plan.patch));
      if (object.find_at({"metadata", "deletionTimestamp"}) != nullptr) {
        return {};
      }
    }
    if (plan.replicas) {
      STATOR_TRY(const Value patched, client_.json_patch(resource, name, *plan.replicas));
    }
    for (const Value& child : plan.create) {
      STATOR_CHECK(create_once(child));
    }
    Status failed;
    for (const Value& child : plan.apply) {
      std::vector<std::string> ignored;
      const Status applied = writer_.apply(child, informer(child.text_at({"kind"})), &ignored);
      for (const std::string& field : ignored) {
        record(object, {true, "FieldIgnored",
                        fmt::format("this cluster's {} has no field {}: it is left out",
                                    child.text_at({"kind"}), field)});
      }
      if (!applied && failed) {
        failed = applied.error().clone();  // one broken child holds up no other
      }
    }
    if (failed) {
      for (const Removal& removal : plan.remove) {
        STATOR_CHECK(client_.remove(removal.resource, removal.name, removal.uid));
      }
    }
    for (const Scale& scale : plan.scales) {
      Value patch = Value::object();
      patch["spec"]["replicas"] = scale.replicas;
      const auto scaled = client_.merge_patch(scale.resource, scale.name, patch, "scale");
      if (!scaled && scaled.error().code() != Code::kNotFound) {
        return scaled.error().clone();
      }
    }
    return write_statuses(object, plan, std::move(failed));
  }

  /// Last: what was reached, or why not. Returns `failed`, or what failed here.
  Status write_statuses(const Value& object, const Plan& plan, Status failed) {
    Value status = plan.status;
    if (!failed && status.is_object()) {
      status["message"] = failed.error().message();
    }
    const bool has_changed = !status.is_null() && !is_stored_status(object, status);
    if (has_changed && failed && plan.events.empty() && postpones(object, status)) {
      return failed;
    }
    for (const auto& [other, other_status] : plan.statuses) {
      STATOR_CHECK(writer_.write_status(other, other_status));
    }
    if (has_changed) {
      STATOR_CHECK(writer_.write_status(object, status));
      for (const PlannedEvent& event : plan.events) {
        record(object, event);
      }
    }
    return failed;
  }

  /// Whether it can wait for what comes next; then the object is looked at again.
  bool postpones(const Value& object, const Value& status) {
    const std::string_view kind = object.text_at({"kind"});
    if (kind == "DynamoGraphDeploymentRequest") {
      return false;
    }
    const std::string key = make_key(kind == "DynamoGraphDeployment" ? kGraphKey : kComponentKey,
                                     kube::name_of(object));
    const Duration wait = pace_.wait(key, object.find("status"), status, clock_.now());
    if (wait > Duration::zero()) {
      queue_.add_after(key, wait);
    }
    return wait > Duration::zero();
  }

  /// Children that others change later are made where they are not there, and left alone.
  Status create_once(const Value& child) {
    const kube::Resource& resource = kube::resource_of(child.text_at({"kind"}));
    const std::string key = fmt::format("{}/{}", resource.kind, kube::name_of(child).to_string());
    const kube::Informer* copies = informer(resource.kind);
    if (copies != nullptr && copies->get(kube::name_of(child))) {
      return {};
    }
    const bool has_copy = copies != nullptr && !kube::label_of(child, kLabelGraph).empty();
    {
      const std::lock_guard lock(created_mutex_);
      if (!has_copy && created_.contains(key)) {
        return {};
      }
    }
    Value complete = child;
    if (kube::annotation_of(child, kAnnotationGenerate) == "ssh-key") {
      STATOR_TRY(const kube::SshKey ssh, kube::make_ssh_key());
      complete["data"]["id_rsa"] = kube::to_base64(ssh.secret);
      complete["data"]["id_rsa.pub"] = kube::to_base64(ssh.shared);
      complete["data"]["authorized_keys"] = kube::to_base64(ssh.shared);
    }
    const auto made = client_.create(resource, complete);
    if (!made && made.error().code() != Code::kAlreadyExists) {
      return made.error().clone();
    }
    const std::lock_guard lock(created_mutex_);
    created_.insert(key);
    return {};
  }

  void record(const Value& object, const PlannedEvent& planned) {
    const Value event =
        kube::make_event(object, planned, options_.holder, kube::rfc3339_micro(clock_.wall_now()));
    client_.create(kube::resource_of("Event"), event).ignore("an event is told once, or not");
  }

  kube::Client& client_;
  ClusterFacts& facts_;
  kube::ChildWriter writer_;
  ControllerOptions options_;
  Clock& clock_;
  kube::WorkQueue queue_;
  kube::LeaseView lease_;
  Counter reconciles_;
  Counter errors_;
  Histogram seconds_;
  OperatorMetrics dashboards_;
  StatusPace pace_;
  NewestStatuses newest_;  ///< of components
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ready_{false};
  std::mutex wake_mutex_;
  std::condition_variable wake_;
  std::vector<Companion> companions_;
  std::mutex created_mutex_;
  std::set<std::string> created_;  ///< shared by the graphs of a namespace: a few for each of these
  std::map<std::string_view, std::unique_ptr<kube::Informer>> informers_;
};

}  // namespace

uint32_t shard_of(std::string_view space, uint32_t shards) {
  uint64_t hash = 0;
  for (const char digit : kube::short_hash(space)) {
    hash = hash * 16 + static_cast<uint64_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
  }
  return static_cast<uint32_t>(hash % shards);
}

std::unique_ptr<Controller> make_controller(kube::Client& client, ClusterFacts& facts,
                                            ControllerOptions options, Clock& clock,
                                            Metrics& metrics, std::vector<Companion> companions) {
  return std::make_unique<OperatorController>(client, facts, std::move(options), clock, metrics,
                                              std::move(companions));
}

}  // namespace stator::op
