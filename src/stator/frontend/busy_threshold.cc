// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/busy_threshold.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "stator/json/value.h"

namespace stator::frontend {
namespace {

struct Field {
  std::string_view name;
  double router::BusyThresholds::* value;
  double max;
};

constexpr std::array<Field, 3> kFields = {{
    {"active_decode_blocks_threshold", &router::BusyThresholds::kv_fraction, 1000},
    {"active_prefill_tokens_threshold", &router::BusyThresholds::prefill_tokens, 1e12},
    {"active_prefill_tokens_threshold_frac", &router::BusyThresholds::prefill_fraction, 1e6},
}};

json::Value to_json(const ServedModel& model) {
  const router::BusyThresholds thresholds = model.router->reject_thresholds();
  json::Value entry = json::Value::object({{"model", model.name}});
  for (const Field& field : kFields) {
    const double value = thresholds.*field.value;
    entry[field.name] = value < 0 ? json::Value() : json::Value(value);
  }
  return entry;
}

Status read_field(const json::Value& body, const Field& field, router::BusyThresholds& out) {
  const json::Value* given = body.find(field.name);
  if (given == nullptr || given->is_null()) {
    return {};
  }
  const double value = given->as_double().value_or(std::nan(""));
  if (value == -1 || (value >= 0 && value <= field.max)) {
    out.*field.value = value;
    return {};
  }
  return Error(
      Code::kInvalidArgument,
      fmt::format("{} must be a number from 0 to {}, or -1 for off", field.name, field.max));
}

}  // namespace

std::string render_busy_thresholds(const ModelCatalog& catalog) {
  json::Value all = json::Value::array();
  for (const auto& model : catalog.list_ready()) {
    all.push_back(to_json(*model));
  }
  return json::to_text(json::Value::object({{"thresholds", std::move(all)}}));
}

Result<std::string> set_busy_thresholds(const ModelCatalog& catalog, std::string_view body) {
  const auto request = json::parse(body);
  if (!request || !request->is_object()) {
    return Error(Code::kInvalidArgument, "the body must be a JSON object");
  }
  const json::Value* name = request->find("model");
  if (name == nullptr || !name->is_string()) {
    return Error(Code::kInvalidArgument, "model must be the name of a served model");
  }
  const auto model = catalog.find(name->text());
  if (model == nullptr) {
    return Error(Code::kNotFound, fmt::format("model '{}' not found", name->text()));
  }
  router::BusyThresholds thresholds = model->router->reject_thresholds();
  for (const Field& field : kFields) {
    STATOR_CHECK(read_field(*request, field, thresholds));
  }
  model->router->set_reject_thresholds(thresholds);
  return json::to_text(to_json(*model));
}

}  // namespace stator::frontend
