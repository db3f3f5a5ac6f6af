// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/request.h"

#include <fmt/format.h>

#include <array>

#include "stator/operator/render.h"
#include "stator/operator/sizing.h"

namespace stator::op {
namespace {

using json::Value;

constexpr std::string_view kRequestName = "dgdr.nvidia.com/name";
constexpr std::string_view kRequestNamespace = "dgdr.nvidia.com/namespace";
constexpr std::string_view kManagedBy = "nvidia.com/managed-by";

/// Builds the next status over the stored one.
class Report {
 public:
  Report(const Value& request, std::string now) : request_(request), now_(std::move(now)) {
    status_ = request.at("status").is_object() ? request.at("status") : Value::object();
    before_ = status_.at("conditions");
    status_["conditions"] = Value::array();
    status_["observedGeneration"] = kube::generation_of(request);
  }

  void phase(std::string_view phase) { status_["phase"] = phase; }
  Value& operator[](std::string_view key) { return status_[key]; }

  void condition(std::string_view type, bool holds, std::string_view reason,
                 std::string_view message) {
    Value made = Value::object();
    made["type"] = type;
    made["status"] = holds ? "True" : "False";
    made["reason"] = reason;
    made["message"] = message;
    made["lastTransitionTime"] = now_;
    made["observedGeneration"] = kube::generation_of(request_);
    kube::set_condition(status_["conditions"], &before_, std::move(made));
  }

  /// Conditions that this step says nothing about stay.
  Value finish() {
    for (const Value& old : before_.elements()) {
      bool is_there = false;
      for (const Value& made : status_["conditions"].elements()) {
        is_there = is_there || made.text_at({"type"}) == old.text_at({"type"});
      }
      if (!is_there) {
        status_["conditions"].push_back(old);
      }
    }
    return std::move(status_);
  }

 private:
  const Value& request_;
  std::string now_;
  Value status_;
  Value before_;
};

Plan fail(const RequestView& view, std::string_view condition, std::string_view reason,
          std::string_view why) {
  Plan plan;
  Report report(view.request, view.now);
  report.phase("Failed");
  report.condition(condition, false, reason, why);
  report.condition("Succeeded", false, reason, why);
  plan.status = report.finish();
  plan.events.push_back({true, std::string(reason), std::string(why)});
  return plan;
}

/// The graph, as it is stored until somebody wants it applied.
Value make_graph(const Value& request, Value graph) {
  const kube::ObjectName own = kube::name_of(request);
  Value& labels = kube::at(graph, {"metadata", "labels"});
  labels[kRequestName] = own.name;
  labels[kRequestNamespace] = own.space;
  labels[kManagedBy] = "stator-operator";
  graph["metadata"]["namespace"] = own.space;
  return graph;
}

void add_graph(Plan& plan, Report& report, Value graph) {
  report.phase("Deploying");
  report["dgdName"] = kube::name_of(graph).name;
  report.condition("DeploymentReady", false, "Deploying", "the graph is being deployed");
  report.condition("Succeeded", false, "Deploying", "the graph is being deployed");
  plan.events.push_back({false, "Deploying", "graph " + kube::name_of(graph).name});
  plan.create.push_back(std::move(graph));
}

/// What the request leaves open is decided now, and written down, so that it stays.
void add_hardware(const Value& request, const Hardware& hardware, Plan& plan) {
  Value found = Value::object();
  const auto add = [&](std::string_view key, Value value) {
    if (request.find_at({"spec", "hardware", key}) == nullptr) {
      found[key] = std::move(value);
    }
  };
  add("gpuSku", hardware.sku);
  add("numGpusPerNode", hardware.gpus_per_node);
  add("totalGpus", hardware.gpus);
  if (hardware.vram_mb > 0) {
    add("vramMb", hardware.vram_mb);
  }
  if (found.size() > 0) {
    plan.patch = Value::object();
    kube::at(*plan.patch, {"spec"})["hardware"] = std::move(found);
  }
}

Plan begin(const RequestView& view) {
  const auto admitted = admit(view.request, {});
  if (!admitted) {
    return fail(view, "Validation", "ValidationFailed", admitted.error().message());
  }
  const Value& request = *admitted;
  const Value& hardware = request.at("spec").at("hardware");
  const bool is_known =
      !hardware.text_at({"gpuSku"}).empty() && hardware.find("totalGpus") != nullptr;
  Hardware discovered;
  if (!is_known) {
    auto found = discover_hardware(view.nodes);
    if (!found) {
      return fail(view, "Validation", "HardwareUnknown", found.error().message());
    }
    discovered = *found;
  }
  const Hardware all = hardware_of(request, discovered);
  auto sizing = size_request(request, all);
  if (!sizing) {
    const bool invalid = sizing.error().code() != Code::kUnavailable;
    return fail(view, invalid ? "Validation" : "Profiling",
                invalid ? "ValidationFailed" : "ProfilingFailed", sizing.error().message());
  }
  Plan plan;
  add_hardware(view.request, all, plan);
  Report report(view.request, view.now);
  std::string why = sizing->why;
  if (request.text_at({"spec", "searchStrategy"}) == "thorough") {
    why += "; measured sweeps (thorough) are not run: the model decided";
  }
  report["profilingPhase"] = "Done";
  report["profilingResults"]["selectedConfig"] = make_graph(view.request, sizing->graph);
  report["profilingResults"]["estimate"] = sizing->selected;
  report.condition("Validation", true, "ValidationPassed", "");
  report.condition("Profiling", true, "ProfilingCompleted", why);
  report.condition("SpecGenerated", true, sizing->goal_met ? "GoalMet" : "GoalMissed", why);
  plan.events.push_back({!sizing->goal_met, "SpecGenerated", why});
  if (kube::bool_at(request, {"spec", "autoApply"}, true)) {
    add_graph(plan, report, make_graph(view.request, std::move(sizing->graph)));
  } else {
    report.phase("Ready");
    report.condition("Succeeded", true, "SpecGenerated", "set spec.autoApply to true to deploy it");
  }
  plan.status = report.finish();
  return plan;
}

/// Deploying and Deployed follow the graph.
Plan follow(const RequestView& view) {
  Plan plan;
  if (!view.graph) {
    return fail(view, "DeploymentReady", "DeploymentDeleted",
                "the graph was deleted: it is not made again; make a new request");
  }
  Report report(view.request, view.now);
  const Value& status = view.graph->at("status");
  int64_t replicas = 0;
  int64_t available = 0;
  for (const json::Member& component : status.at("components").members()) {
    replicas += kube::int_at(component.value, {"replicas"}, 0);
    available += kube::int_at(component.value, {"availableReplicas"},
                              kube::int_at(component.value, {"readyReplicas"}, 0));
  }
  report["deploymentInfo"]["replicas"] = replicas;
  report["deploymentInfo"]["availableReplicas"] = available;
  const bool is_current =
      kube::int_at(status, {"observedGeneration"}, -1) >= kube::generation_of(*view.graph);
  const bool ready = is_current && status.text_at({"state"}) == "successful";
  const bool failed = is_current && status.text_at({"state"}) == "failed";
  if (failed) {
    std::string why = "the graph is refused";
    for (const Value& condition : status.at("conditions").elements()) {
      why = condition.text_at({"message"});
    }
    return fail(view, "DeploymentReady", "DeploymentFailed", why);
  }
  report.phase(ready ? "Deployed" : "Deploying");
  report.condition("DeploymentReady", ready, ready ? "DeploymentReady" : "Deploying",
                   fmt::format("{} of {} replicas available", available, replicas));
  report.condition("Succeeded", ready, ready ? "Deployed" : "Deploying", "");
  if (ready && view.request.text_at({"status", "phase"}) != "Deployed") {
    plan.events.push_back({false, "Deployed", "the graph is ready"});
  }
  plan.status = report.finish();
  return plan;
}

}  // namespace

Plan plan_request(const RequestView& view) {
  if (view.request.find_at({"metadata", "deletionTimestamp"}) != nullptr) {
    return {};  // its graph goes on serving
  }
  const std::string_view phase = view.request.text_at({"status", "phase"});
  if (phase.empty() || phase == "Pending" || phase == "Profiling") {
    return begin(view);
  }
  if (phase == "Ready" && kube::bool_at(view.request, {"spec", "autoApply"}, true)) {
    Plan plan;
    Report report(view.request, view.now);
    add_graph(plan, report, view.request.at("status").at("profilingResults").at("selectedConfig"));
    plan.status = report.finish();
    return plan;
  }
  return phase == "Deploying" || phase == "Deployed" ? follow(view) : Plan();
}

Value refuse_request(const Value& request, std::string_view why, const std::string& now) {
  const RequestView view{.request = request, .graph = std::nullopt, .nodes = {}, .now = now};
  return fail(view, "DeploymentReady", "DeploymentRejected", why).status;
}

}  // namespace stator::op
