// SPDX-License-Identifier: Apache-2.0
#include "stator/app/planner_plugins.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/app/planner_file.h"

namespace stator::app {
namespace {

constexpr std::string_view kScheme = "grpc://";
/// Known keys that say nothing here.
constexpr std::string_view kIgnored[] = {"auth_token", "protocol_version", "version", "needs",
                                         "observation_window_seconds"};

Error refuse(std::string text) {
  return Error(Code::kInvalidArgument, std::move(text));
}

Result<bool> read_hold_policy(const json::Value& value) {
  std::string name(value.text());
  std::ranges::transform(name, name.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  });
  const auto number = value.as_uint64();
  if (name == "HOLD_LAST" || number == 1) {
    return true;
  }
  if (name == "ACCEPT_WHEN_IDLE" || number == 0) {
    return false;
  }
  return refuse("hold_policy must be HOLD_LAST or ACCEPT_WHEN_IDLE");
}

Result<planner::Stage> read_stage(std::string_view name) {
  for (const planner::Stage stage : {planner::Stage::kPredict, planner::Stage::kPropose,
                                     planner::Stage::kReconcile, planner::Stage::kConstrain}) {
    if (name == planner::name_of(stage)) {
      return stage;
    }
  }
  return refuse(
      fmt::format("plugin_type must be predict, propose, reconcile or constrain, not '{}'", name));
}

Status read_key(std::string_view key, const json::Value& value, scaling::PluginConfig& out) {
  if (key == "plugin_id") {
    out.id = std::string(value.text());
  } else if (key == "plugin_type") {
    STATOR_TRY(out.stage, read_stage(value.text()));
  } else if (key == "priority") {
    const auto number = value.as_uint64();
    if (!number || *number > UINT32_MAX) {
      return refuse("priority must be a whole number from 0");
    }
    out.priority = static_cast<uint32_t>(*number);
  } else if (key == "endpoint") {
    if (!value.text().starts_with(kScheme) ||
        value.text().find(':', kScheme.size()) == std::string_view::npos) {
      return refuse(fmt::format("endpoint must be grpc://HOST:PORT, not '{}'", value.text()));
    }
    out.address = std::string(value.text().substr(kScheme.size()));
  } else if (key == "execution_interval_seconds") {
    out.interval_s = value.as_double().value_or(-1);
    if (!(out.interval_s >= 0 && out.interval_s <= 86'400)) {
      return refuse("execution_interval_seconds must be from 0 to 86400");
    }
  } else if (key == "hold_policy") {
    STATOR_TRY(out.holds_last, read_hold_policy(value));
  } else if (key == "requires_produced_fields") {
    for (const json::Value& field : value.elements()) {
      out.requires_fields.emplace_back(field.text());
    }
  } else if (std::ranges::find(kIgnored, key) == std::end(kIgnored)) {
    return refuse(fmt::format("'{}' is no key of a plugin", key));
  }
  return {};
}

}  // namespace

Result<scaling::ReportConfig> read_planner_reports(const std::string& path) {
  STATOR_TRY(const json::Value file, read_planner_map(path));
  scaling::ReportConfig out;
  out.folder = std::string(file.text_at({"report_output_dir"}));
  if (const json::Value* hours = file.find("report_interval_hours");
      hours != nullptr && !hours->is_null()) {
    out.interval_hours = hours->as_double().value_or(-1);
    if (!(out.interval_hours > 0 && out.interval_hours <= 8760)) {
      return refuse(path + ": report_interval_hours must be above 0, at most 8760");
    }
  }
  return out;
}

Result<std::vector<scaling::PluginConfig>> read_planner_plugins(const std::string& path) {
  STATOR_TRY(const json::Value file, read_planner_map(path));
  std::vector<scaling::PluginConfig> out;
  for (const json::Value& entry : file.at("scheduling").at("external_plugins").elements()) {
    scaling::PluginConfig plugin;
    const std::string place = fmt::format("{}: external_plugins[{}]", path, out.size());
    for (const auto& [key, value] : entry.members()) {
      STATOR_CHECK(read_key(key, value, plugin), place);
    }
    if (plugin.id.empty() || plugin.address.empty() || entry.find("plugin_type") == nullptr ||
        entry.find("priority") == nullptr) {
      return refuse(place + " needs plugin_id, plugin_type, priority and endpoint");
    }
    out.push_back(std::move(plugin));
  }
  return out;
}

}  // namespace stator::app
