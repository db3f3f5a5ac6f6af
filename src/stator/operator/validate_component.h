// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stator/operator/field_check.h"
#include "stator/operator/graph.h"
#include "stator/operator/validate.h"

namespace stator::op {

/// The rules of one component (spec.components[i], or a DCD's spec).
struct ComponentRules {
  const Environment& environment;
  const Admission& admission;
  Provider provider = Provider::kComponent;
  std::string backend;
  const json::Value* old = nullptr;  ///< the component as stored
  std::string path;                  ///< "spec.components[0]"
  std::string discovery_mode = {};   ///< of the graph's annotation: pod, container or ""
};
void check_component(FieldCheck& check, const ComponentRules& rules, const Component& component);

/// A DNS-like name: letters, digits and hyphens, 1 to 63.
bool is_component_name(std::string_view name);
/// "mp" or "ray", whatever the case.
bool is_executor(std::string_view text);
/// `^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
bool is_domain_name(std::string_view name);

}  // namespace stator::op
