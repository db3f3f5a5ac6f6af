// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/pool_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "stator/kube/informer.h"

namespace stator::epp {
namespace {

using json::Value;

bool is_ready(const Value& pod) {
  const Value* conditions = pod.find_at({"status", "conditions"});
  return pod.find_at({"metadata", "deletionTimestamp"}) == nullptr && conditions != nullptr &&
         std::ranges::any_of(conditions->elements(), [](const Value& condition) {
           return condition.text_at({"type"}) == "Ready" && condition.text_at({"status"}) == "True";
         });
}

/// The number under "instance_id" of a Stator worker's record, or of a Dynamo worker's endpoints.
std::string instance_in(const Value& data) {
  if (const Value* own = data.find_at({"stator", "instance_id"})) {
    return std::string(own->text());
  }
  for (const json::Member& endpoint : data.at("endpoints").members()) {
    if (const Value* instance = endpoint.value.find("instance_id")) {
      return std::string(instance->text());
    }
  }
  return {};
}

/// Of a worker's record, which may have a model's card of 100 kB, what names the worker.
void keep_identity(Value& record) {
  const Value* data = record.find_at({"spec", "data"});
  if (data == nullptr) {
    return;
  }
  Value kept = Value::object();
  if (const std::string instance = instance_in(*data); !instance.empty()) {
    kept["stator"]["instance_id"] = instance;
  }
  record["spec"]["data"] = std::move(kept);
}

class PoolWatchService final : public PoolWatch {
 public:
  PoolWatchService(kube::Client& client, kube::ObjectName name, EndpointPool& pool)
      : name_(std::move(name)), pool_(pool) {
    const auto refresh = [this](const Value*, const Value*) { update(); };
    pools_ = std::make_unique<kube::Informer>(
        client, kube::resource_of("InferencePool"),
        kube::Informer::Options{
            .selection = {.space = name_.space, .fields = "metadata.name=" + name_.name},
            .on_change = refresh});
    pods_ = std::make_unique<kube::Informer>(
        client, kube::resource_of("Pod"),
        kube::Informer::Options{.selection = {.space = name_.space},
                                .trim =
                                    [](Value& pod) {
                                      pod.erase("spec");
                                      if (Value* status = pod.find("status")) {
                                        status->erase("containerStatuses");
                                      }
                                    },
                                .on_change = refresh,
                                // Pods that were there before us are no change to come.
                                .on_synced = [this] { update(); }});
    objectives_ = std::make_unique<kube::Informer>(
        client, kube::resource_of("InferenceObjective"),
        kube::Informer::Options{
            .selection = {.space = name_.space},
            .on_change = [this](const Value*, const Value*) { update_objectives(); }});
    rewrites_ = std::make_unique<kube::Informer>(
        client, kube::resource_of("InferenceModelRewrite"),
        kube::Informer::Options{
            .selection = {.space = name_.space},
            .on_change = [this](const Value*, const Value*) { update_rewrites(); }});
    records_ = std::make_unique<kube::Informer>(
        client, kube::resource_of("DynamoWorkerMetadata"),
        kube::Informer::Options{
            .selection = {.space = name_.space}, .trim = keep_identity, .on_change = refresh});
    started_.store(true);
    update();
    update_objectives();
    update_rewrites();
  }

 private:
  void update() {
    if (!started_.load()) {
      return;  // the second informer is still being made
    }
    const std::lock_guard lock(mutex_);
    const auto pool = pools_->get(name_);
    if (!pool || !pods_->is_synced()) {
      return;
    }
    const auto all = [](const Value&) { return true; };
    pool_.set_endpoints(endpoints_of(*pool, pods_->find(name_.space, all),
                                     instances_of(records_->find(name_.space, all))));
  }

  /// An optional API: without it every request has priority 0.
  void update_objectives() {
    if (!started_.load()) {
      return;
    }
    const std::lock_guard lock(mutex_);
    std::map<std::string, double, std::less<>> priorities;
    for (const Value& objective : objectives_->find(name_.space, [&](const Value& each) {
           const std::string_view pool = each.text_at({"spec", "poolRef", "name"});
           return pool.empty() || pool == name_.name;
         })) {
      const Value* priority = objective.find_at({"spec", "priority"});
      priorities.emplace(kube::name_of(objective).name,
                         priority == nullptr ? 0 : priority->as_double().value_or(0));
    }
    pool_.set_objectives(std::move(priorities));
  }

  /// An optional API, too.
  void update_rewrites() {
    if (!started_.load()) {
      return;
    }
    const std::lock_guard lock(mutex_);
    pool_.set_rewrites(rewrites_of(rewrites_->find(name_.space, [&](const Value& each) {
      const std::string_view pool = each.text_at({"spec", "poolRef", "name"});
      return pool.empty() || pool == name_.name;
    })));
  }

  kube::ObjectName name_;
  EndpointPool& pool_;
  std::atomic<bool> started_{false};
  std::mutex mutex_;
  std::unique_ptr<kube::Informer> pools_;
  std::unique_ptr<kube::Informer> pods_;
  std::unique_ptr<kube::Informer> objectives_;
  std::unique_ptr<kube::Informer> rewrites_;
  std::unique_ptr<kube::Informer> records_;
};

}  // namespace

Instances instances_of(const std::vector<Value>& records) {
  Instances instances;
  for (const Value& record : records) {
    std::string instance = instance_in(record.at("spec").at("data"));
    const std::string_view pod = kube::label_of(record, "stator.dev/pod");
    if (!instance.empty()) {
      instances.emplace(pod.empty() ? kube::name_of(record).name : std::string(pod),
                        std::move(instance));
    }
  }
  return instances;
}

std::vector<Endpoint> endpoints_of(const Value& pool, const std::vector<Value>& pods,
                                   const Instances& instances) {
  std::vector<Endpoint> endpoints;
  const Value* selector = pool.find_at({"spec", "selector", "matchLabels"});
  const Value* ports = pool.find_at({"spec", "targetPorts"});
  if (selector == nullptr || ports == nullptr || selector->size() == 0) {
    return endpoints;
  }
  for (const Value& pod : pods) {
    const bool is_chosen = std::ranges::all_of(selector->members(), [&](const json::Member& label) {
      return kube::label_of(pod, label.key) == label.value.text();
    });
    const std::string_view ip = pod.text_at({"status", "podIP"});
    if (!is_chosen || ip.empty() || !is_ready(pod)) {
      continue;
    }
    const auto instance = instances.find(kube::name_of(pod).name);
    for (const Value& port : ports->elements()) {
      const bool is_v6 = ip.find(':') != std::string_view::npos;
      const int64_t number = kube::int_at(port, {"number"}, 0);
      if (number < 1 || number > UINT16_MAX) {
        continue;
      }
      endpoints.push_back(
          {.address = is_v6 ? fmt::format("[{}]:{}", ip, number) : fmt::format("{}:{}", ip, number),
           .is_prefill = kube::label_of(pod, "nvidia.com/dynamo-component-type") == "prefill",
           .instance = instance == instances.end() ? std::string() : instance->second});
    }
  }
  return endpoints;
}

Rewrites rewrites_of(const std::vector<Value>& objects) {
  Rewrites rewrites;
  for (const Value& object : objects) {
    for (const Value& rule : object.at("spec").at("rules").elements()) {
      std::vector<RewriteTarget> targets;
      for (const Value& target : rule.at("targets").elements()) {
        const int64_t weight = kube::int_at(target, {"weight"}, 1);
        if (const std::string_view model = target.text_at({"modelRewrite"});
            !model.empty() && weight >= 0 && weight <= UINT32_MAX) {
          targets.push_back({std::string(model), static_cast<uint32_t>(weight)});
        }
      }
      for (const Value& match : rule.at("matches").elements()) {
        const std::string_view type = match.text_at({"model", "type"});
        if ((type.empty() || type == "Exact") && !targets.empty()) {
          rewrites.emplace(match.text_at({"model", "value"}), targets);  // the oldest rule wins
        }
      }
    }
  }
  return rewrites;
}

std::unique_ptr<PoolWatch> watch_pool(kube::Client& client, const kube::ObjectName& name,
                                      EndpointPool& pool) {
  return std::make_unique<PoolWatchService>(client, name, pool);
}

}  // namespace stator::epp
