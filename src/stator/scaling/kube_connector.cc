// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/log.h"
#include "stator/json/value.h"
#include "stator/kube/object.h"
#include "stator/scaling/connector.h"

namespace stator::scaling {
namespace {

/// A component of a graph, v1beta1's list or v1alpha1's map.
struct Part {
  std::string name;
  std::string type;
  size_t index = 0;
  int64_t replicas = 1;
};

std::vector<Part> parts_of(const json::Value& graph) {
  std::vector<Part> out;
  const json::Value* components = graph.find_at({"spec", "components"});
  if (components == nullptr) {
    return out;
  }
  for (const json::Value& each : components->elements()) {
    out.push_back({.name = std::string(each.text_at({"name"})),
                   .type = std::string(each.text_at({"type"})),
                   .index = out.size(),
                   .replicas = kube::int_at(each, {"replicas"}, 1)});
  }
  return out;
}

const Part* find(const std::vector<Part>& parts, std::string_view name,
                 std::initializer_list<std::string_view> types) {
  for (const Part& part : parts) {
    if (name.empty() ? std::ranges::find(types, part.type) != types.end() : part.name == name) {
      return &part;
    }
  }
  return nullptr;
}

class KubeConnector final : public Connector {
 public:
  KubeConnector(KubeOptions options, kube::Client& client)
      : options_(std::move(options)), client_(client) {}

  std::string_view name() const override { return "kubernetes"; }

  Result<PoolCounts> counts() override {
    STATOR_TRY(const json::Value graph, read_graph());
    PoolCounts out;
    const std::vector<Part> parts = parts_of(graph);
    const Part* prefill = find(parts, options_.prefill_component, {"prefill"});
    const Part* decode = find(parts, options_.decode_component, {"decode", "worker"});
    if (decode == nullptr) {
      return Error(Code::kNotFound,
                   fmt::format("graph {} has no component of type decode or worker; name it with "
                               "--decode-component",
                               options_.graph.to_string()));
    }
    if (kube::int_at(graph, {"status", "observedGeneration"}, 0) < kube::generation_of(graph)) {
      out.unstable = "the operator has not seen the graph's last change yet";
    }
    const std::string_view rollout = graph.text_at({"status", "rollingUpdate", "phase"});
    if (rollout == "Pending" || rollout == "InProgress") {
      out.unstable = fmt::format("a rolling update is {}", rollout);
    }
    out.decode_ready = ready(graph, *decode, out);
    out.wanted.decode = static_cast<uint32_t>(decode->replicas);
    if (prefill != nullptr) {
      out.prefill_ready = ready(graph, *prefill, out);
      out.wanted.prefill = static_cast<uint32_t>(prefill->replicas);
    }
    return out;
  }

  Status set(const PoolTargets& targets, std::string_view reason) override {
    STATOR_TRY(const json::Value graph, read_graph());
    const std::vector<Part> parts = parts_of(graph);
    // What shrinks first, so that what grows finds GPUs.
    std::vector<std::pair<const Part*, uint32_t>> changes;
    const auto want = [&](std::optional<uint32_t> target, const Part* part) {
      if (target && part != nullptr && part->replicas != int64_t{*target}) {
        const bool shrinks = int64_t{*target} < part->replicas;
        changes.insert(shrinks ? changes.begin() : changes.end(), {part, *target});
      }
    };
    want(targets.prefill, find(parts, options_.prefill_component, {"prefill"}));
    want(targets.decode, find(parts, options_.decode_component, {"decode", "worker"}));
    for (const auto& [part, replicas] : changes) {
      STATOR_CHECK(patch(*part, replicas));
      log::info("planner", "replicas patched",
                {{"graph", options_.graph.to_string()},
                 {"component", part->name},
                 {"replicas", replicas},
                 {"reason", reason}});
    }
    return {};
  }

 private:
  Result<json::Value> read_graph() {
    return client_.get(kube::resource_of("DynamoGraphDeployment"), options_.graph);
  }

  /// What takes traffic, and whether all of it is what is wanted.
  static std::optional<uint32_t> ready(const json::Value& graph, const Part& part,
                                       PoolCounts& counts) {
    const json::Value* status = graph.find_at({"status", "components", part.name});
    if (status == nullptr) {
      counts.unstable = fmt::format("the operator has not reported on component {} yet", part.name);
      return std::nullopt;
    }
    const int64_t available = kube::int_at(*status, {"availableReplicas"}, -1);
    const int64_t traffic =
        available >= 0 ? available : kube::int_at(*status, {"readyReplicas"}, 0);
    const int64_t updated = kube::int_at(*status, {"updatedReplicas"}, part.replicas);
    if (part.replicas != updated || updated != traffic) {
      counts.unstable = fmt::format("component {}: {} wanted, {} updated, {} take traffic",
                                    part.name, part.replicas, updated, traffic);
    }
    return static_cast<uint32_t>(std::max<int64_t>(0, traffic));
  }

  Status patch(const Part& part, uint32_t replicas) {
    json::Value body = json::Value::object();
    body["spec"]["replicas"] = replicas;
    // Names of objects are in lower case, those of components need not be.
    std::string name = fmt::format("{}-{}", options_.graph.name, part.name);
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    const kube::ObjectName adapter{options_.graph.space, name};
    auto scaled = client_.merge_patch(kube::resource_of("DynamoGraphDeploymentScalingAdapter"),
                                      adapter, body, "scale");
    if (scaled) {
      return {};
    }
    if (scaled.error().code() != Code::kNotFound) {
      return std::move(scaled.error());
    }
    const std::string at = fmt::format("/spec/components/{}", part.index);
    json::Value patch = json::Value::array();
    patch.push_back({{"op", "test"}, {"path", at + "/name"}, {"value", part.name}});
    patch.push_back({{"op", "add"}, {"path", at + "/replicas"}, {"value", replicas}});
    auto done =
        client_.json_patch(kube::resource_of("DynamoGraphDeployment"), options_.graph, patch);
    return done ? Status() : Status(std::move(done.error()));
  }

  const KubeOptions options_;
  kube::Client& client_;
};

}  // namespace

std::unique_ptr<Connector> make_kube_connector(KubeOptions options, kube::Client& client) {
  return std::make_unique<KubeConnector>(std::move(options), client);
}

}  // namespace stator::scaling
