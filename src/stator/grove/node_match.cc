// SPDX-License-Identifier: Apache-2.0
#include "stator/grove/node_match.h"

#include <algorithm>
#include <charconv>

#include "stator/kube/object.h"

namespace stator::grove {
namespace {

using json::Value;

bool is_number(std::string_view text, int64_t& number) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failed == std::errc() && end == text.data() + text.size();
}

bool meets(const Value& requirement, const Value* label) {
  const std::string_view operation = requirement.text_at({"operator"});
  const Value::Array& values = requirement.at("values").elements();
  const auto is_in = [&] {
    return label != nullptr && std::ranges::any_of(values, [&](const Value& value) {
             return value.text() == label->text();
           });
  };
  if (operation == "In") {
    return is_in();
  }
  if (operation == "NotIn") {
    return !is_in();
  }
  if (operation == "Exists") {
    return label != nullptr;
  }
  if (operation == "DoesNotExist") {
    return label == nullptr;
  }
  int64_t own = 0;
  int64_t bound = 0;
  if (label == nullptr || values.empty() || !is_number(label->text(), own) ||
      !is_number(values.front().text(), bound)) {
    return false;
  }
  return operation == "Gt" ? own > bound : operation == "Lt" && own < bound;
}

bool term_matches(const Value& term, const Value& node) {
  const Value& labels = node.at("metadata").at("labels");
  for (const Value& requirement : term.at("matchExpressions").elements()) {
    if (!meets(requirement, labels.find(requirement.text_at({"key"})))) {
      return false;
    }
  }
  for (const Value& requirement : term.at("matchFields").elements()) {
    if (requirement.text_at({"key"}) == "metadata.name" &&
        !meets(requirement, node.find_at({"metadata", "name"}))) {
      return false;
    }
  }
  return true;
}

const Value& required_terms(const Value& pod_spec) {
  return pod_spec.at("affinity")
      .at("nodeAffinity")
      .at("requiredDuringSchedulingIgnoredDuringExecution")
      .at("nodeSelectorTerms");
}

bool tolerates(const Value& pod_spec, const Value& taint) {
  const std::string_view effect = taint.text_at({"effect"});
  if (effect != "NoSchedule" && effect != "NoExecute") {
    return true;
  }
  const Value::Array& all = pod_spec.at("tolerations").elements();
  return std::ranges::any_of(all, [&](const Value& toleration) {
    const std::string_view own_effect = toleration.text_at({"effect"});
    const std::string_view key = toleration.text_at({"key"});
    const bool exists = toleration.text_at({"operator"}) == "Exists";
    if (!own_effect.empty() && own_effect != effect) {
      return false;
    }
    if (key.empty()) {
      return exists;
    }
    return key == taint.text_at({"key"}) &&
           (exists || toleration.text_at({"value"}) == taint.text_at({"value"}));
  });
}

bool is_up(const Value& node) {
  if (kube::bool_at(node, {"spec", "unschedulable"}, false) ||
      node.find_at({"metadata", "deletionTimestamp"}) != nullptr) {
    return false;
  }
  const Value::Array& conditions = node.at("status").at("conditions").elements();
  return std::ranges::none_of(conditions, [](const Value& condition) {
    return condition.text_at({"type"}) == "Ready" && condition.text_at({"status"}) != "True";
  });
}

}  // namespace

bool may_run_on(const Value& pod_spec, const Value& node) {
  if (!is_up(node)) {
    return false;
  }
  const Value& labels = node.at("metadata").at("labels");
  for (const json::Member& wanted : pod_spec.at("nodeSelector").members()) {
    if (labels.at(wanted.key).text() != wanted.value.text()) {
      return false;
    }
  }
  const Value::Array& terms = required_terms(pod_spec).elements();
  if (!terms.empty() &&
      std::ranges::none_of(terms, [&](const Value& term) { return term_matches(term, node); })) {
    return false;
  }
  const Value::Array& taints = node.at("spec").at("taints").elements();
  return std::ranges::all_of(taints,
                             [&](const Value& taint) { return tolerates(pod_spec, taint); });
}

std::vector<const Value*> apart_from(const Value& pod_spec) {
  std::vector<const Value*> selectors;
  const Value& rule = pod_spec.at("affinity").at("podAntiAffinity");
  for (const Value& term : rule.at("requiredDuringSchedulingIgnoredDuringExecution").elements()) {
    const bool is_by_node = term.text_at({"topologyKey"}) == "kubernetes.io/hostname";
    const bool is_own_space =
        term.find("namespaces") == nullptr && term.find("namespaceSelector") == nullptr;
    if (const Value* selector = term.find("labelSelector");
        selector != nullptr && is_by_node && is_own_space) {
      selectors.push_back(selector);
    }
  }
  return selectors;
}

bool selects(const Value& selector, const Value& pod) {
  const Value& labels = pod.at("metadata").at("labels");
  for (const json::Member& wanted : selector.at("matchLabels").members()) {
    const Value* own = labels.find(wanted.key);
    if (own == nullptr || own->text() != wanted.value.text()) {
      return false;
    }
  }
  return std::ranges::all_of(selector.at("matchExpressions").elements(),
                             [&](const Value& requirement) {
                               return meets(requirement, labels.find(requirement.text_at({"key"})));
                             });
}

std::string placement_signature(const Value& pod_spec) {
  Value parts = Value::object();
  parts["selector"] = pod_spec.at("nodeSelector");
  parts["terms"] = required_terms(pod_spec);
  parts["tolerations"] = pod_spec.at("tolerations");
  return json::to_text(kube::sorted(parts));
}

}  // namespace stator::grove
