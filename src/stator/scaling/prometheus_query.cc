// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/prometheus_query.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "stator/json/value.h"

namespace stator::scaling {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return out + '"';
}

double number_of(std::string_view text) {
  const auto page = MetricsPage::parse(fmt::format("value {}\n", text));
  return page ? page->sum("value").value_or(std::nan("")) : std::nan("");
}

}  // namespace

std::string make_query(const ObserverConfig& config) {
  std::string out = fmt::format(
      "{{__name__=~\"{}_.+|dynamo_component_router_.+|stator_router_worker_.+|"
      "stator_engine_(accepted_)?draft_tokens_total\"",
      config.prefix);
  if (!config.model.empty()) {
    out += fmt::format(",model=~{}", quoted(config.model + "|"));
  }
  if (!config.name_space.empty()) {
    out += fmt::format(",dynamo_namespace={}", quoted(config.name_space));
  }
  return out + "}";
}

Result<std::map<std::string, MetricsPage>> parse_vector(std::string_view body) {
  STATOR_TRY(const json::Value root, json::parse(body), "Prometheus");
  if (root.text_at({"status"}) != "success") {
    const std::string_view error = root.text_at({"error"});
    if (error.empty()) {
      return Error(Code::kCorrupt, "Prometheus answered without status and error");
    }
    return Error(Code::kUnavailable, fmt::format("Prometheus says: {}", error.substr(0, 500)));
  }
  const json::Value* data = root.find("data");
  const json::Value* result = data == nullptr ? nullptr : data->find("result");
  if (result == nullptr || !result->is_array() || data->text_at({"resultType"}) != "vector") {
    return Error(Code::kCorrupt, "Prometheus' answer is no vector");
  }
  std::map<std::string, std::vector<Sample>> by_instance;
  size_t count = 0;
  for (const json::Value& series : result->elements()) {
    const json::Value* metric = series.find("metric");
    const json::Value* value = series.find("value");
    if (metric == nullptr || !metric->is_object() || value == nullptr || value->size() != 2 ||
        ++count > kSamplesMax) {
      return Error(Code::kCorrupt, "a series of Prometheus' answer has no labels and value");
    }
    Sample sample;
    std::string instance;
    for (const auto& [key, label] : metric->members()) {
      const std::string text(label.as_string().value_or(""));
      if (key == "__name__") {
        sample.name = text;
      } else if (key == "instance") {
        instance = text;
      } else {
        sample.labels.emplace_back(key, text);
      }
    }
    sample.value = number_of(value->elements()[1].as_string().value_or(""));
    by_instance[instance].push_back(std::move(sample));
  }
  std::map<std::string, MetricsPage> out;
  for (auto& [instance, samples] : by_instance) {
    out.emplace(instance, MetricsPage(std::move(samples)));
  }
  return out;
}

}  // namespace stator::scaling
