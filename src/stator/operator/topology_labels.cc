// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/topology_labels.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/core/log.h"
#include "stator/kube/informer.h"
#include "stator/kube/lease.h"
#include "stator/kube/object.h"
#include "stator/kube/work_queue.h"
#include "stator/net/thread.h"
#include "stator/operator/names.h"

namespace stator::op {
namespace {

using json::Value;

constexpr std::string_view kLabelPrefix = "nvidia.com/dynamo-topology.";

void copy_label(const Value& pod, const Value& node, std::string_view from, std::string_view to,
                TopologyLabels& plan) {
  const std::string_view value = kube::label_of(node, from);
  if (value.empty()) {
    plan.events.push_back({true, "TopologyLabelMissing",
                           fmt::format("node {} has no label {}: this pod's place is unknown",
                                       kube::name_of(node).name, from)});
    return;
  }
  if (kube::label_of(pod, to) != value) {
    if (!plan.patch) {
      plan.patch = Value::object();
    }
    kube::at(*plan.patch, {"metadata", "labels"})[to] = value;
  }
}

class TopologyService final : public TopologyLabeller {
 public:
  TopologyService(kube::Client& client, TopologyOptions options, Clock& clock)
      : client_(client), options_(std::move(options)), clock_(clock), queue_(clock) {
    kube::Informer::Options pods;
    pods.selection = {
        .space = options_.space, .labels = std::string(kLabelWantsTopology), .fields = {}};
    pods.trim = [](Value& pod) {
      pod.erase("status");
      if (Value* spec = pod.find("spec"); spec != nullptr) {
        const std::string node(spec->text_at({"nodeName"}));
        *spec = Value::object();
        (*spec)["nodeName"] = node;
      }
    };
    pods.on_change = [this](const Value*, const Value* after) {
      const bool is_placed = after != nullptr && !after->text_at({"spec", "nodeName"}).empty();
      if (is_placed && (!options_.wanted || options_.wanted(kube::name_of(*after).space))) {
        queue_.add(kube::name_of(*after).to_string());
      }
    };
    pods_ = std::make_unique<kube::Informer>(client_, kube::resource_of("Pod"), std::move(pods));
    thread_ = net::Thread("topology", [this] { work(); });
  }

  ~TopologyService() override {
    queue_.stop();
    thread_.join();
    pods_.reset();
  }

 private:
  void work() {
    while (const auto key = queue_.take()) {
      const Status done = reconcile(*key);
      if (!done && done.error().code() != Code::kCancelled) {
        log::warn("topology", done.error().message(), {{"pod", *key}});
      }
      queue_.done(*key, done.has_value());
    }
  }

  /// A pod gets its labels once: nodes and bindings are asked for then, and not watched.
  Status reconcile(const std::string& key) {
    const size_t slash = key.find('/');
    const kube::ObjectName name{key.substr(0, slash), key.substr(slash + 1)};
    const auto pod = pods_->get(name);
    if (!pod) {
      return {};
    }
    STATOR_TRY(const Value node,
               client_.get(kube::resource_of("Node"),
                           {"", std::string(pod->text_at({"spec", "nodeName"}))}));
    std::vector<Value> topologies;
    const std::string topology(kube::annotation_of(*pod, kAnnotationTopologyName));
    if (!topology.empty()) {
      auto found = client_.get(kube::resource_of("ClusterTopologyBinding"), {"", topology});
      if (found) {
        topologies.push_back(std::move(*found));
      } else if (found.error().code() != Code::kNotFound) {
        return found.error().clone();
      }
    }
    const TopologyLabels plan = plan_topology_labels(*pod, node, topologies);
    if (plan.patch) {
      const auto patched = client_.merge_patch(kube::resource_of("Pod"), name, *plan.patch);
      if (!patched && patched.error().code() != Code::kNotFound) {
        return patched.error().clone();
      }
    }
    for (const kube::Happening& happening : plan.events) {
      client_
          .create(kube::resource_of("Event"),
                  kube::make_event(*pod, happening, options_.holder,
                                   kube::rfc3339_micro(clock_.wall_now())))
          .ignore("an event is told once, or not");
    }
    return {};
  }

  kube::Client& client_;
  TopologyOptions options_;
  Clock& clock_;
  kube::WorkQueue queue_;
  std::unique_ptr<kube::Informer> pods_;
  net::Thread thread_;
};

}  // namespace

TopologyLabels plan_topology_labels(const Value& pod, const Value& node,
                                    const std::vector<Value>& topologies) {
  TopologyLabels plan;
  if (const std::string_view key = kube::annotation_of(pod, kAnnotationTopologyKey); !key.empty()) {
    copy_label(pod, node, key, key, plan);
    return plan;
  }
  const std::string_view name = kube::annotation_of(pod, kAnnotationTopologyName);
  const auto binding = std::ranges::find_if(
      topologies, [&](const Value& each) { return kube::name_of(each).name == name; });
  if (binding == topologies.end()) {
    plan.events.push_back(
        {true, "TopologyUnknown", fmt::format("there is no ClusterTopologyBinding {}", name)});
    return plan;
  }
  const std::string_view wanted = kube::annotation_of(pod, kAnnotationTopologyDomain);
  for (const Value& level : binding->at("spec").at("levels").elements()) {
    const std::string_view domain = level.text_at({"domain"});
    if (wanted.empty() || wanted == domain) {
      copy_label(pod, node, level.text_at({"key"}), fmt::format("{}{}", kLabelPrefix, domain),
                 plan);
    }
  }
  return plan;
}

std::unique_ptr<TopologyLabeller> start_topology_labeller(kube::Client& client,
                                                          TopologyOptions options, Clock& clock) {
  return std::make_unique<TopologyService>(client, std::move(options), clock);
}

}  // namespace stator::op
