// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace stator::app {

/// A variable of OpenTelemetry (OTEL_…) or of Dynamo's request traces (DYN_REQUEST_TRACE…), as its
/// setting here takes it: general variables stand for those of traces that are not there, and the
/// switches that turn a whole feature on or off are looked at.
std::optional<std::string> read_trace_env(std::string_view name);

/// Whether read_trace_env() knows the variable.
bool is_trace_variable(std::string_view name);

}  // namespace stator::app
