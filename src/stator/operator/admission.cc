// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/admission.h"

#include <fmt/format.h>

#include "stator/kube/base64.h"
#include "stator/kube/object.h"
#include "stator/operator/checkpoint.h"
#include "stator/operator/convert.h"
#include "stator/operator/validate.h"
#include "stator/operator/validate_alpha.h"
#include "stator/operator/validate_object.h"
#include "stator/operator/validate_set.h"
#include "stator/operator/warnings.h"

namespace stator::op {
namespace {

using json::Value;

constexpr int kUnprocessable = 422;

/// The answer's frame: the request's uid and whether it is allowed.
Value make_answer(const Value& review, bool allowed) {
  Value answer = Value::object();
  answer["apiVersion"] = "admission.k8s.io/v1";
  answer["kind"] = "AdmissionReview";
  answer["response"]["uid"] = review.text_at({"request", "uid"});
  answer["response"]["allowed"] = allowed;
  return answer;
}

Value deny(const Value& review, std::string_view why) {
  Value answer = make_answer(review, false);
  Value& status = answer["response"]["status"];
  status["code"] = kUnprocessable;
  status["reason"] = "Invalid";
  status["message"] = why;
  return answer;
}

bool has_versions(std::string_view kind) {
  return kind == "DynamoGraphDeployment" || kind == "DynamoComponentDeployment" ||
         kind == "DynamoGraphDeploymentRequest" || kind == "DynamoGraphDeploymentScalingAdapter";
}

/// Without what only the server writes: updates of the status pass other rules.
bool is_status_write(const Value& review) {
  return !review.text_at({"request", "subResource"}).empty();
}

Value with_defaults(const Value& object, const AdmissionContext& context, bool is_create) {
  Value made = object;
  const std::string_view kind = object.text_at({"kind"});
  if (kind == "DynamoGraphDeployment") {
    if (made.find("spec") != nullptr && made.find("spec")->is_object()) {
      set_defaults(made, context.environment, is_create);
    }
  } else if (kind == "DynamoComponentDeployment") {
    if (Value* spec = made.find("spec"); spec != nullptr && spec->is_object()) {
      set_component_defaults(*spec);
      if (spec->find("name") == nullptr) {
        (*spec)["name"] = object.text_at({"metadata", "name"});
      }
    }
  } else if (kind == "PodCliqueSet") {
    set_defaults_of_set(made);
  }
  return made;
}

/// What changed of the parts that defaults touch, as a JSON patch.
Value patch_of(const Value& before, const Value& after) {
  Value patch = Value::array();
  const auto add = [&](std::string_view path, const Value& value) {
    Value step = Value::object();
    step["op"] = "add";
    step["path"] = path;
    step["value"] = value;
    patch.push_back(std::move(step));
  };
  const Value* annotations = after.find_at({"metadata", "annotations"});
  const Value* old_annotations = before.find_at({"metadata", "annotations"});
  if (annotations != nullptr && annotations->is_object() &&
      (old_annotations == nullptr || !kube::same(*annotations, *old_annotations))) {
    add("/metadata/annotations", *annotations);
  }
  const Value* spec = after.find("spec");
  const Value* old_spec = before.find("spec");
  if (spec != nullptr && (old_spec == nullptr || !kube::same(*spec, *old_spec))) {
    add("/spec", *spec);
  }
  return patch;
}

/// What a conversion kept of a manifest in v1alpha1.
Status validate_alpha(const Value& subject) {
  Value written = subject;
  written["spec"] = preserved_alpha(subject);
  FieldCheck check;
  if (subject.text_at({"kind"}) != "DynamoGraphDeploymentRequest") {
    check_alpha(check, written);
  }
  return outcome(check, subject);
}

}  // namespace

Value review_defaults(const Value& review, const AdmissionContext& context) {
  Value answer = make_answer(review, true);
  const Value* object = review.find_at({"request", "object"});
  if (object == nullptr || !object->is_object() || is_status_write(review)) {
    return answer;
  }
  const bool is_create = review.text_at({"request", "operation"}) == "CREATE";
  Value before = *object;
  if (before.text_at({"metadata", "namespace"}).empty()) {
    before["metadata"]["namespace"] = review.text_at({"request", "namespace"});
  }
  const Value patch = patch_of(*object, with_defaults(before, context, is_create));
  if (patch.size() > 0) {
    answer["response"]["patchType"] = "JSONPatch";
    answer["response"]["patch"] = kube::to_base64(json::to_text(patch));
  }
  return answer;
}

Value review_restore(const Value& review, const Value& checkpoint) {
  Value answer = make_answer(review, true);
  const Value* pod = review.find_at({"request", "object"});
  const auto restored =
      pod == nullptr || checkpoint.is_null() ? std::nullopt : restore_pod(*pod, checkpoint);
  if (restored) {
    Value patch = patch_of(*pod, *restored);
    Value labels = Value::object();
    labels["op"] = "add";
    labels["path"] = "/metadata/labels";
    labels["value"] = restored->at("metadata").at("labels");
    patch.push_back(std::move(labels));
    answer["response"]["patchType"] = "JSONPatch";
    answer["response"]["patch"] = kube::to_base64(json::to_text(patch));
  }
  return answer;
}

Value review_validity(const Value& review, const AdmissionContext& context) {
  const std::string_view operation = review.text_at({"request", "operation"});
  const Value* object = review.find_at({"request", "object"});
  if (object == nullptr || !object->is_object() || operation == "DELETE" ||
      is_status_write(review)) {
    return make_answer(review, true);
  }
  if (object->find_at({"metadata", "deletionTimestamp"}) != nullptr) {
    return make_answer(review, true);  // finalizers of broken objects must go, too
  }
  const Value* old = operation == "UPDATE" ? review.find_at({"request", "oldObject"}) : nullptr;
  const std::string_view user = review.text_at({"request", "userInfo", "username"});
  const Admission admission{
      .old = old != nullptr && old->is_object() ? old : nullptr,
      .is_stored = operation == "UPDATE",
      .is_operator = !user.empty() && user == context.operator_user,
      .was_alpha = has_versions(object->text_at({"kind"})) &&
                   review.text_at({"request", "requestKind", "version"}) == "v1alpha1"};
  Value subject = *object;
  if (subject.text_at({"metadata", "name"}).empty()) {
    subject["metadata"]["name"] = review.text_at({"request", "name"});
  }
  const std::string_view kind = object->text_at({"kind"});
  Status checked;
  if (admission.was_alpha && admission.old == nullptr) {
    checked = validate_alpha(subject);
  }
  if (!checked) {
    return deny(review, checked.error().message());
  }
  if (kind == "DynamoGraphDeployment") {
    checked = validate_graph(subject, context.environment, admission);
  } else if (kind == "PodCliqueSet" || kind == "ClusterTopologyBinding") {
    checked = validate_set(subject, admission.old);
  } else {
    checked = validate_other(subject, context.environment, admission);
  }
  if (!checked) {
    return deny(review, checked.error().message());
  }
  Value answer = make_answer(review, true);
  for (const std::string& warning : warnings_for(subject)) {
    answer["response"]["warnings"].push_back(warning);
  }
  return answer;
}

Value review_conversion(const Value& review) {
  Value answer = Value::object();
  answer["apiVersion"] = "apiextensions.k8s.io/v1";
  answer["kind"] = "ConversionReview";
  Value& response = answer["response"];
  response["uid"] = review.text_at({"request", "uid"});
  const std::string_view version = review.text_at({"request", "desiredAPIVersion"});
  Value converted = Value::array();
  std::string failed;
  if (const Value* objects = review.find_at({"request", "objects"})) {
    for (const Value& object : objects->elements()) {
      auto made = convert(object, version);
      if (!made) {
        failed = made.error().message();
        break;
      }
      converted.push_back(std::move(*made));
    }
  }
  response["result"]["status"] = failed.empty() ? "Success" : "Failed";
  if (failed.empty()) {
    response["convertedObjects"] = std::move(converted);
  } else {
    response["result"]["message"] = failed;
  }
  return answer;
}

}  // namespace stator::op
