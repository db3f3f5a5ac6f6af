// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/kube_discovery.h"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "stator/core/log.h"
#include "stator/discovery/memory_discovery.h"
#include "stator/discovery/routable_marks.h"
#include "stator/kube/informer.h"

namespace stator::discovery {
namespace {

using json::Value;
using namespace std::chrono_literals;

constexpr std::string_view kManager = "stator-worker";

/// A pod whose gate waits for us counts as soon as its containers are ready.
bool is_pod_ready(const Value& pod) {
  const std::string_view wanted = is_gated(pod) ? "ContainersReady" : "Ready";
  if (pod.find_at({"metadata", "deletionTimestamp"}) != nullptr) {
    return false;
  }
  const Value* conditions = pod.find_at({"status", "conditions"});
  if (conditions == nullptr) {
    return false;
  }
  for (const Value& condition : conditions->elements()) {
    if (condition.text_at({"type"}) == wanted) {
      return condition.text_at({"status"}) == "True";
    }
  }
  return false;
}

/// Of a pod's spec nothing else is asked.
void keep_gates(Value& pod) {
  const Value* gates = pod.find_at({"spec", "readinessGates"});
  Value kept = gates == nullptr ? Value() : *gates;
  pod.erase("spec");
  if (!kept.is_null()) {
    pod["spec"]["readinessGates"] = std::move(kept);
  }
}

/// What the API server knows is mirrored into a view in memory, which serves the watches.
class KubeDiscovery final : public Discovery {
 public:
  KubeDiscovery(KubeDiscoveryOptions options, const Clock& clock, Metrics& metrics)
      : options_(std::move(options)),
        client_(options_.client, clock, metrics),
        view_(make_memory_discovery(metrics)) {
    if (options_.marks_routable) {
      marks_ = std::make_unique<RoutableMarks>(client_, clock);
    }
    const auto refresh = [this](const Value*, const Value*) { on_change(); };
    pods_ = std::make_unique<kube::Informer>(
        client_, kube::resource_of("Pod"),
        kube::Informer::Options{.selection = {.space = options_.space,
                                              .labels = "nvidia.com/dynamo-discovery-enabled=true"},
                                .trim = keep_gates,
                                .on_change = refresh});
    records_ = std::make_unique<kube::Informer>(
        client_, kube::resource_of("DynamoWorkerMetadata"),
        kube::Informer::Options{.selection = {.space = options_.space}, .on_change = refresh});
    started_.store(true);
    rebuild();
  }

  ~KubeDiscovery() override {
    client_.stop();
    records_.reset();
    pods_.reset();
    marks_.reset();
  }

  Status wait_until_synced() {
    std::unique_lock lock(wake_mutex_);
    for (Duration waited{}; waited < options_.startup_timeout; waited += 20ms) {
      if (records_->is_synced() && pods_->is_synced()) {
        lock.unlock();
        rebuild();
        return records_->is_served()
                   ? Status()
                   : Status(
                         Error(Code::kNotFound,
                               "the cluster does not serve DynamoWorkerMetadatas: stator operator "
                               "crds | kubectl apply --server-side -f -"));
      }
      wake_.wait_for(lock, 20ms);
    }
    return Error(Code::kUnavailable, fmt::format("discovery: no answer from {} within its time",
                                                 options_.client.access.server));
  }

  Result<std::unique_ptr<Registration>> register_instance(InstanceRecord record) override {
    STATOR_CHECK(validate(record));
    STATOR_CHECK(write(record));
    return std::make_unique<KubeRegistration>(*this, std::move(record));
  }
  std::vector<InstanceRecord> list(const InstanceQuery& query) override {
    return view_->list(query);
  }
  std::unique_ptr<Watch> watch(InstanceQuery query, net::Shard& shard,
                               DiscoveryListener& listener) override {
    return view_->watch(std::move(query), shard, listener);
  }

 private:
  class KubeRegistration final : public Registration {
   public:
    KubeRegistration(KubeDiscovery& owner, InstanceRecord record)
        : owner_(owner), record_(std::move(record)) {}
    ~KubeRegistration() override {
      const Value object = to_object(record_, owner_.options_);
      owner_.client_.remove(kube::resource_of("DynamoWorkerMetadata"), kube::name_of(object))
          .ignore("the pod's end removes it, too");
    }
    Status update(InstanceRecord record) override {
      if (record.key != record_.key || record.incarnation != record_.incarnation) {
        return Error(Code::kInvalidArgument, "a registration's key and incarnation cannot change");
      }
      STATOR_CHECK(owner_.write(record));
      record_ = std::move(record);
      return {};
    }

   private:
    KubeDiscovery& owner_;
    InstanceRecord record_;
  };

  Status write(const InstanceRecord& record) {
    const auto written =
        client_.apply(kube::resource_of("DynamoWorkerMetadata"), to_object(record, options_),
                      {.manager = std::string(kManager)});
    return written ? Status() : Status(written.error().clone());
  }

  void on_change() {
    if (!started_.load()) {
      return;
    }
    rebuild();
  }

  /// The wanted view against the one there is: what is gone is withdrawn first (D2).
  void rebuild() {
    const std::lock_guard lock(mutex_);
    if (!records_->is_synced()) {
      return;
    }
    std::map<InstanceKey, InstanceRecord> wanted;
    std::vector<Value> gated;  // pods whose gate is still closed
    for (const Value& object : records_->find(options_.space, [](const Value&) { return true; })) {
      auto record = from_object(object);
      if (!record) {
        continue;  // another runtime's
      }
      const std::string pod(object.text_at({"metadata", "labels", "stator.dev/pod"}));
      const auto known = pod.empty() ? std::nullopt : pods_->get({options_.space, pod});
      // A frontend beside the worker makes the pod ready, and must know it before.
      const bool is_own = !pod.empty() && pod == options_.pod_name;
      if (!known || is_own || is_pod_ready(*known)) {
        wanted.insert_or_assign(record->key, std::move(*record));
        if (marks_ != nullptr && known && is_gated(*known) && !is_routable(*known)) {
          gated.push_back(*known);
        }
      }
    }
    std::erase_if(mirrored_, [&](const auto& entry) {
      const auto it = wanted.find(entry.first);
      return it == wanted.end() || it->second.incarnation != entry.second.record.incarnation;
    });
    for (auto& [key, record] : wanted) {
      const auto it = mirrored_.find(key);
      if (it == mirrored_.end()) {
        auto registration = view_->register_instance(record);
        if (registration) {
          mirrored_.emplace(key, Mirrored{record, std::move(*registration)});
        } else {
          log::warn("discovery", registration.error().message(), {{"instance", key.to_string()}});
        }
      } else if (!(it->second.record == record)) {
        if (it->second.registration->update(record)) {
          it->second.record = record;
        }
      }
    }
    for (const Value& pod : gated) {
      marks_->add(pod);  // its worker has been told to who watches
    }
  }

  struct Mirrored {
    InstanceRecord record;
    std::unique_ptr<Registration> registration;
  };

  KubeDiscoveryOptions options_;
  kube::Client client_;
  std::unique_ptr<Discovery> view_;
  std::atomic<bool> started_{false};
  std::mutex wake_mutex_;
  std::condition_variable wake_;
  std::mutex mutex_;
  std::map<InstanceKey, Mirrored> mirrored_;
  std::unique_ptr<RoutableMarks> marks_;  // null: gates are others' to open
  std::unique_ptr<kube::Informer> pods_;
  std::unique_ptr<kube::Informer> records_;
};

}  // namespace

Value to_object(const InstanceRecord& record, const KubeDiscoveryOptions& options) {
  std::string name = record.key.to_string();
  for (char& c : name) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    c = good ? c : c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : '-';
  }
  if (!options.pod_name.empty()) {
    name = fmt::format("{}-{}", options.pod_name, kube::short_hash(name));
  }
  Value object = kube::make_object(kube::resource_of("DynamoWorkerMetadata"),
                                   {options.space, name.substr(0, 200)});
  if (!options.pod_name.empty()) {
    object["metadata"]["labels"]["stator.dev/pod"] = options.pod_name;
  }
  if (!options.pod_name.empty() && !options.pod_uid.empty()) {
    Value owner = Value::object();
    owner["apiVersion"] = "v1";
    owner["kind"] = "Pod";
    owner["name"] = options.pod_name;
    owner["uid"] = options.pod_uid;
    object["metadata"]["ownerReferences"].push_back(std::move(owner));
  }
  auto data = json::parse(to_json(record));
  object["spec"]["data"]["stator"] = data ? std::move(*data) : Value();
  return object;
}

Result<InstanceRecord> from_object(const Value& object) {
  const Value* data = object.find_at({"spec", "data", "stator"});
  if (data == nullptr) {
    return Error(Code::kCorrupt, "the record is of another runtime");
  }
  return parse_instance_record(json::to_text(*data));
}

Result<std::unique_ptr<Discovery>> open_kube_discovery(KubeDiscoveryOptions options,
                                                       const Clock& clock, Metrics& metrics) {
  auto discovery = std::make_unique<KubeDiscovery>(std::move(options), clock, metrics);
  STATOR_CHECK(discovery->wait_until_synced());
  return discovery;
}

}  // namespace stator::discovery
