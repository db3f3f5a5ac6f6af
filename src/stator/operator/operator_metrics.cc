// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/operator_metrics.h"

#include <algorithm>

namespace stator::op {
namespace {

using json::Value;

constexpr std::array<double, 13> kReconcileBounds = {.005, .01, .025, .05, .1, .25, .5,
                                                     1,    2.5, 5,    10,  30, 60};
constexpr std::array<double, 11> kReviewBounds = {.001, .005, .01, .025, .05, .1,
                                                  .25,  .5,   1,   2.5,  5};

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::string_view word_of(Code code) {
  switch (code) {
    case Code::kNotFound:
      return "not_found";
    case Code::kAlreadyExists:
      return "conflict";
    case Code::kInvalidArgument:
      return "validation";
    case Code::kPermissionDenied:
      return "forbidden";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kOverloaded:
      return "rate_limited";
    default:
      return "internal";
  }
}

bool holds(const Value& object, std::string_view type) {
  const auto& conditions = object.at("status").at("conditions").elements();
  return std::ranges::any_of(conditions, [&](const Value& each) {
    return each.text_at({"type"}) == type && each.text_at({"status"}) == "True";
  });
}

}  // namespace

std::string status_word(const Value& object) {
  for (const std::string_view key : {"state", "phase"}) {
    if (const std::string_view word = object.text_at({"status", key}); !word.empty()) {
      return std::string(word);
    }
  }
  const std::string_view kind = object.text_at({"kind"});
  if (kind == "DynamoComponentDeployment") {
    return holds(object, "Available") ? "ready" : "not_ready";
  }
  if (kind == "DynamoModel") {
    return holds(object, "EndpointsReady") ? "ready" : "not_ready";
  }
  return "unknown";
}

std::string OperatorMetrics::label_of_space(std::string_view space) {
  if (spaces_.contains(space) || spaces_.size() < kNamespacesMax) {
    return *spaces_.emplace(space).first;
  }
  return "other";
}

void OperatorMetrics::on_reconciled(std::string_view kind, std::string_view space,
                                    const Status& outcome, Duration took) {
  const MutexLock lock(mutex_);
  const std::string where = label_of_space(space);
  const std::string result = outcome ? "success" : "error";
  const MetricLabels labels = {
      {"resource_type", std::string(kind)}, {"namespace", where}, {"result", result}};
  metrics_.counter("dynamo_operator_reconcile_total", "Reconciliations by kind", labels).add();
  metrics_
      .histogram("dynamo_operator_reconcile_duration_seconds", "Time of reconciliations",
                 kReconcileBounds, labels)
      .observe(seconds(took));
  if (!outcome) {
    metrics_
        .counter("dynamo_operator_reconcile_errors_total", "Reconciliations that failed",
                 {{"resource_type", std::string(kind)},
                  {"namespace", where},
                  {"error_type", std::string(word_of(outcome.error().code()))}})
        .add();
  }
}

void OperatorMetrics::on_reviewed(std::string_view kind, std::string_view operation, bool allowed,
                                  Duration took) {
  const std::string what(kind);
  const std::string how(operation);
  metrics_
      .counter(
          "dynamo_operator_webhook_requests_total", "Reviews of objects that are written",
          {{"resource_type", what}, {"operation", how}, {"result", allowed ? "allowed" : "denied"}})
      .add();
  metrics_
      .histogram("dynamo_operator_webhook_duration_seconds", "Time of reviews", kReviewBounds,
                 {{"resource_type", what}, {"operation", how}})
      .observe(seconds(took));
  if (!allowed) {
    metrics_
        .counter("dynamo_operator_webhook_denials_total", "Objects that were refused",
                 {{"resource_type", what}, {"operation", how}, {"reason", "validation"}})
        .add();
  }
}

void OperatorMetrics::add(std::string_view kind, const std::string& space,
                          const std::string& status, int64_t by) {
  int64_t& count = counts_[{std::string(kind), space, status}];
  count += by;
  metrics_
      .gauge("dynamo_operator_resources_total", "Objects by kind and what they are at",
             {{"resource_type", std::string(kind)}, {"namespace", space}, {"status", status}})
      .set(static_cast<double>(count));
}

void OperatorMetrics::on_object(std::string_view kind, const kube::ObjectName& name,
                                const Value* object) {
  const MutexLock lock(mutex_);
  const std::pair key(std::string(kind), name);
  const auto known = status_.find(key);
  const std::string word = object == nullptr ? std::string() : status_word(*object);
  if (known != status_.end() && known->second == word) {
    return;
  }
  const std::string space = label_of_space(name.space);
  if (known != status_.end()) {
    add(kind, space, known->second, -1);
    status_.erase(known);
  }
  if (object != nullptr) {
    add(kind, space, word, 1);
    status_.emplace(key, word);
  }
}

}  // namespace stator::op
