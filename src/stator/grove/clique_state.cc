// SPDX-License-Identifier: Apache-2.0
#include "stator/grove/clique_state.h"

#include <algorithm>

#include "stator/grove/names.h"
#include "stator/kube/object.h"

namespace stator::grove {
namespace {

using json::Value;

bool has_failed_container(const Value& pod) {
  const Value::Array& containers = pod.at("status").at("containerStatuses").elements();
  return std::ranges::any_of(containers, [](const Value& container) {
    for (const std::string_view state : {"state", "lastState"}) {
      const Value* ended = container.find_at({state, "terminated"});
      if (ended != nullptr && kube::int_at(*ended, {"exitCode"}, 0) != 0 &&
          !kube::bool_at(container, {"ready"}, false)) {
        return true;
      }
    }
    return false;
  });
}

bool has_condition(const Value* stored, std::string_view type, std::string_view status) {
  if (stored == nullptr) {
    return false;
  }
  const Value::Array& conditions = stored->at("status").at("conditions").elements();
  return std::ranges::any_of(conditions, [&](const Value& condition) {
    return condition.text_at({"type"}) == type && condition.text_at({"status"}) == status;
  });
}

}  // namespace

void CliqueState::start_anew() {
  leaving.insert(leaving.end(), pods.begin(), pods.end());
  pods.clear();
  ready = scheduled = gated = updated = failed = starting = 0;
  is_new = true;
}

bool CliqueState::was_scheduled() const {
  if (is_new) {
    return false;
  }
  // Once scheduled, a clique stays one that can be breached: its condition tells.
  return scheduled >= instance->min_available || has_condition(stored, kScheduled, "True") ||
         has_condition(stored, kBreached, "True");
}

bool CliqueState::is_breached() const {
  if (is_updating() || !was_scheduled()) {
    return false;
  }
  return scheduled - failed < instance->min_available;
}

std::map<std::string, CliqueState> count_pods(const Layout& layout, const SetView& view) {
  std::map<std::string, CliqueState> states;
  for (const CliqueInstance& instance : layout.cliques) {
    states[instance.name] = {.instance = &instance,
                             .stored = find_object(view.cliques, instance.name),
                             .pods = {},
                             .leaving = {}};
  }
  for (const Value& pod : view.pods) {
    const auto found = states.find(std::string(kube::label_of(pod, kClique)));
    if (found == states.end()) {
      continue;
    }
    CliqueState& state = found->second;
    if (is_terminating(pod) || is_over(pod)) {
      state.leaving.push_back(&pod);
      continue;
    }
    state.pods.push_back(&pod);
    state.ready += is_ready(pod) ? 1 : 0;
    state.scheduled += is_scheduled(pod) ? 1 : 0;
    state.gated += is_gated(pod) ? 1 : 0;
    state.updated += kube::label_of(pod, kTemplateHash) == state.instance->spec->hash ? 1 : 0;
    const bool failed = is_scheduled(pod) && has_failed_container(pod);
    state.failed += failed ? 1 : 0;
    state.starting += is_scheduled(pod) && !is_ready(pod) && !failed ? 1 : 0;
  }
  return states;
}

}  // namespace stator::grove
