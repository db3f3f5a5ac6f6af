// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/json/value.h"
#include "stator/operator/pod_template.h"

namespace stator::op {

/// The container that a component's type makes of nothing: command, ports, probes, environment.
json::Value default_container(const PodContext& context);
/// The parts of a frontend that a sidecar gets: ports, probes and environment, no command.
json::Value frontend_sidecar_defaults(const PodContext& context);
/// {name, value}.
json::Value env_entry(std::string_view name, std::string_view value);
/// {name, valueFrom {fieldRef {fieldPath}}}.
json::Value env_field(std::string_view name, std::string_view path);

}  // namespace stator::op
