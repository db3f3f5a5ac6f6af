// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/global_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace stator::scaling {
namespace {

PoolTargets merged(const PoolNow& pool, const PoolTargets& targets) {
  return {.prefill = targets.prefill.value_or(pool.prefill),
          .decode = targets.decode.value_or(pool.decode)};
}

/// GPUs that a pool would take more than now.
int64_t delta(const PoolNow& pool, const PoolTargets& targets) {
  const PoolTargets to = merged(pool, targets);
  return int64_t{*to.prefill} * pool.gpus_per_prefill + int64_t{*to.decode} * pool.gpus_per_decode -
         pool.gpus();
}

int64_t largest_engine(const std::vector<PoolNow>& pools) {
  int64_t out = 1;
  for (const PoolNow& pool : pools) {
    out = std::max<int64_t>({out, pool.gpus_per_prefill, pool.gpus_per_decode});
  }
  return out;
}

/// As far from now towards the targets as `gpus` more (or fewer, if negative) allow, decode first.
PoolTargets part_of(const PoolNow& pool, const PoolTargets& targets, int64_t gpus) {
  const PoolTargets to = merged(pool, targets);
  const auto walk = [&](uint32_t from, uint32_t want, uint32_t each) {
    const int64_t steps = std::min<int64_t>(std::abs(int64_t{want} - int64_t{from}),
                                            each == 0 ? 0 : std::abs(gpus) / each);
    const bool same_way = (want > from) == (gpus > 0);
    const int64_t moved = same_way ? (gpus > 0 ? steps : -steps) : 0;
    gpus -= moved * each;
    return static_cast<uint32_t>(from + moved);
  };
  PoolTargets out;
  out.decode = walk(pool.decode, *to.decode, pool.gpus_per_decode);
  out.prefill = walk(pool.prefill, *to.prefill, pool.gpus_per_prefill);
  return out;
}

}  // namespace

std::string ScaleRequest::pool() const {
  return kube_namespace.empty() ? graph : kube_namespace + "/" + graph;
}

Result<ScaleRequest> parse_scale_request(std::string_view body) {
  STATOR_TRY(const json::Value root, json::parse(body), "scale request");
  ScaleRequest out;
  out.caller_namespace = root.text_at({"caller_namespace"});
  out.graph = root.text_at({"graph_deployment_name"});
  out.kube_namespace = root.text_at({"k8s_namespace"});
  out.blocking = root.at("blocking").as_bool().value_or(false);
  out.predicted_load = root.at("predicted_load").as_double();
  if (out.graph.empty() || out.caller_namespace.empty()) {
    return Error(Code::kInvalidArgument,
                 "graph_deployment_name and caller_namespace must be texts that are not empty");
  }
  const json::Value* targets = root.find("target_replicas");
  if (targets == nullptr || !targets->is_array() || targets->size() == 0 || targets->size() > 2) {
    return Error(Code::kInvalidArgument, "target_replicas must be a list of one or two pools");
  }
  for (const json::Value& each : targets->elements()) {
    std::string_view role = each.text_at({"sub_component_type"});
    role = role.empty() ? each.text_at({"role"}) : role;
    std::optional<uint64_t> count;
    for (const std::string_view key : {"desired_replicas", "replicas", "n"}) {
      count = count ? count : each.at(key).as_uint64();
    }
    if (!count || *count > 1'000'000) {
      return Error(Code::kInvalidArgument,
                   "target_replicas: desired_replicas must be a whole number from 0 to 1000000");
    }
    if (role != "prefill" && role != "decode") {
      return Error(Code::kInvalidArgument,
                   "target_replicas: sub_component_type must be prefill or decode");
    }
    (role == "prefill" ? out.targets.prefill : out.targets.decode) = static_cast<uint32_t>(*count);
  }
  return out;
}

std::string render_json(const ScaleRequest& request) {
  json::Value out = json::Value::object();
  out["caller_namespace"] = request.caller_namespace;
  out["graph_deployment_name"] = request.graph;
  out["k8s_namespace"] = request.kube_namespace;
  json::Value& targets = out["target_replicas"] = json::Value::array();
  const auto add = [&](std::string_view role, std::optional<uint32_t> count) {
    if (count) {
      targets.push_back({{"sub_component_type", role}, {"desired_replicas", *count}});
    }
  };
  add("prefill", request.targets.prefill);
  add("decode", request.targets.decode);
  out["blocking"] = request.blocking;
  if (request.predicted_load) {
    out["predicted_load"] = *request.predicted_load;
  }
  return json::to_text(out);
}

bool GlobalPlanner::fits(int64_t total, int64_t tolerance) const {
  const bool below = config_.min_total_gpus >= 0 && total < config_.min_total_gpus - tolerance;
  const bool beyond = config_.max_total_gpus >= 0 && total > config_.max_total_gpus;
  return !below && !beyond;
}

void GlobalPlanner::pair(GlobalVerdict& verdict, const std::vector<PoolNow>& pools,
                         std::string_view own, int64_t total) const {
  const int64_t tolerance = largest_engine(pools);
  const bool too_many = config_.max_total_gpus >= 0 && total > config_.max_total_gpus;
  struct Partner {
    const PoolNow* pool;
    const PoolTargets* targets;
    int64_t gpus;
  };
  std::vector<Partner> partners;
  for (const PoolNow& pool : pools) {
    const auto intent = intents_.find(pool.name);
    if (pool.name == own || intent == intents_.end()) {
      continue;
    }
    const int64_t gpus = delta(pool, intent->second.targets);
    if (gpus != 0 && (gpus < 0) == too_many) {
      partners.push_back({&pool, &intent->second.targets, gpus});
    }
  }
  // Equal ones by name, so that the order does not depend on the library.
  std::ranges::sort(partners, {}, [](const Partner& p) {
    return std::pair(std::abs(p.gpus), std::string_view(p.pool->name));
  });
  const int64_t edge = too_many ? config_.max_total_gpus : config_.min_total_gpus;
  for (const Partner& partner : partners) {
    if (fits(total, 0)) {
      break;
    }
    const int64_t after = total + partner.gpus;
    const bool oversize = too_many ? config_.min_total_gpus >= 0 && after < config_.min_total_gpus
                                   : config_.max_total_gpus >= 0 && after > config_.max_total_gpus;
    if (!oversize) {
      verdict.steps.push_back({partner.pool->name, *partner.targets, partner.gpus});
      total = after;
      continue;
    }
    const PoolTargets part = part_of(*partner.pool, *partner.targets, edge - total);
    const int64_t gpus = delta(*partner.pool, part);
    if (gpus != 0) {
      verdict.steps.push_back({partner.pool->name, part, gpus});
      total += gpus;
    }
    break;
  }
  if (fits(total, verdict.steps.size() > 1 ? tolerance : 0)) {
    return;
  }
  verdict.kind = GlobalVerdict::Kind::kRejected;
  verdict.message = fmt::format(
      "{} GPUs in all would be {} {}, and no other pool wants the opposite", total,
      too_many ? "above the most that may be used," : "below the least that must be used,", edge);
  verdict.steps.clear();
}

GlobalVerdict GlobalPlanner::decide(const ScaleRequest& request, const std::vector<PoolNow>& pools,
                                    double now_s) {
  GlobalVerdict out;
  if (!config_.managed_namespaces.empty() &&
      !config_.managed_namespaces.contains(request.caller_namespace)) {
    out.kind = GlobalVerdict::Kind::kRejected;
    out.message = fmt::format("namespace '{}' is not managed here", request.caller_namespace);
    return out;
  }
  std::erase_if(intents_,
                [&](const auto& each) { return now_s - each.second.at_s > config_.intent_ttl_s; });
  const std::string name = request.pool();
  if (intents_.size() < kIntentsMax || intents_.contains(name)) {
    intents_[name] = {request.targets, now_s};
  }
  const auto own = std::ranges::find(pools, name, &PoolNow::name);
  if (own == pools.end()) {
    out.message = fmt::format("pool '{}' is not known here", name);
    return out;
  }
  int64_t total = 0;
  for (const PoolNow& pool : pools) {
    total += pool.gpus();
  }
  const int64_t gpus = delta(*own, request.targets);
  out.kind = GlobalVerdict::Kind::kSuccess;
  out.steps.push_back({name, request.targets, gpus});
  // A change towards the band is never refused for not reaching it.
  const bool nearer =
      (gpus <= 0 && config_.max_total_gpus >= 0 && total > config_.max_total_gpus) ||
      (gpus >= 0 && config_.min_total_gpus >= 0 && total < config_.min_total_gpus &&
       fits(total + gpus, config_.min_total_gpus));
  if (!fits(total + gpus, 0) && !nearer) {
    pair(out, pools, name, total + gpus);
  }
  std::ranges::sort(out.steps, {}, [](const GlobalVerdict::Step& step) {
    return std::pair(step.gpus, std::string_view(step.pool));
  });
  if (out.kind == GlobalVerdict::Kind::kSuccess) {
    out.message = config_.no_operation
                      ? "approved; nothing is changed (no-operation)"
                      : fmt::format("approved with {} change(s)", out.steps.size());
    if (config_.no_operation) {
      out.steps.clear();
    }
  }
  return out;
}

std::string render_json(const GlobalVerdict& verdict, const PoolNow& pool) {
  constexpr std::string_view kNames[] = {"success", "rejected", "error"};
  json::Value out = json::Value::object();
  out["status"] = kNames[static_cast<size_t>(verdict.kind)];
  out["message"] = verdict.message;
  json::Value& replicas = out["current_replicas"];
  replicas["prefill"] = pool.prefill;
  replicas["decode"] = pool.decode;
  return json::to_text(out);
}

}  // namespace stator::scaling
