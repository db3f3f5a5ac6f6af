// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/admission.h"

#include <gtest/gtest.h>

#include "graphs.h"
#include "stator/kube/base64.h"
#include "stator/operator/validate_set.h"

namespace stator::op {
namespace {

using json::Value;

Value review_of(const Value& object, std::string_view operation = "CREATE") {
  Value review = Value::object();
  Value& request = review["request"];
  request["uid"] = "u1";
  request["operation"] = operation;
  request["name"] = object.text_at({"metadata", "name"});
  request["namespace"] = "llm";
  request["object"] = object;
  request["userInfo"]["username"] = "alice";
  return review;
}

bool is_allowed(const Value& answer) {
  return answer.find_at({"response", "allowed"})->as_bool().value();
}

TEST(Admission, AGoodGraphPassesAndABrokenOneIsNamed) {
  const AdmissionContext context;
  Value graph = from_yaml(kAggregated);
  EXPECT_TRUE(is_allowed(review_validity(review_of(graph), context)));
  graph["spec"]["components"].mutable_elements()->at(1)["replicas"] = -2;
  const Value answer = review_validity(review_of(graph), context);
  EXPECT_FALSE(is_allowed(answer));
  EXPECT_EQ(answer.text_at({"response", "uid"}), "u1");
  EXPECT_EQ(answer.text_at({"response", "status", "message"}),
            "DynamoGraphDeployment \"chat.one\" is invalid: spec.components[1].replicas: Invalid "
            "value: -2: must be at least 0");
  // What is going away, or only gets a status, is never held up.
  EXPECT_TRUE(is_allowed(review_validity(review_of(graph, "DELETE"), context)));
  graph["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  EXPECT_TRUE(is_allowed(review_validity(review_of(graph, "UPDATE"), context)));
}

TEST(Admission, OnlyTheOperatorScalesPastAnAdapter) {
  const AdmissionContext context{.operator_user = "system:serviceaccount:s:op"};
  Value graph = from_yaml(kAggregated);
  graph["metadata"]["annotations"]["nvidia.com/workload-provider"] = "component";
  Value review = review_of(graph, "UPDATE");
  review["request"]["oldObject"] = graph;
  review["request"]["object"]["spec"]["components"].mutable_elements()->at(1)["replicas"] = 5;
  EXPECT_FALSE(is_allowed(review_validity(review, context)));
  review["request"]["userInfo"]["username"] = "system:serviceaccount:s:op";
  EXPECT_TRUE(is_allowed(review_validity(review, context)));
  review["request"]["userInfo"].erase("username");
  EXPECT_FALSE(is_allowed(review_validity(review, {})));
}

TEST(Admission, DefaultsComeAsAPatch) {
  Value graph = from_yaml(kAggregated);
  const Value answer = review_defaults(review_of(graph), {});
  EXPECT_EQ(answer.text_at({"response", "patchType"}), "JSONPatch");
  const auto patch = json::parse(kube::from_base64(answer.text_at({"response", "patch"})).value());
  ASSERT_TRUE(patch);
  ASSERT_EQ(patch->size(), 2U);
  EXPECT_EQ(patch->at(size_t{0}).text_at({"value", "nvidia.com/workload-provider"}), "component");
  const Value& components = patch->at(size_t{1}).at("value").at("components");
  EXPECT_EQ(kube::int_at(components.at(size_t{0}), {"replicas"}, 0), 1);
}

TEST(Admission, ConversionsAnswerForAllObjectsOrSayWhyNot) {
  Value review = Value::object();
  review["request"]["uid"] = "u2";
  review["request"]["desiredAPIVersion"] = "nvidia.com/v1alpha1";
  review["request"]["objects"].push_back(from_yaml(kAggregated));
  const Value answer = review_conversion(review);
  EXPECT_EQ(answer.text_at({"response", "result", "status"}), "Success");
  const Value& made = answer.at("response").at("convertedObjects").at(size_t{0});
  EXPECT_EQ(made.text_at({"apiVersion"}), "nvidia.com/v1alpha1");
  EXPECT_NE(made.find_at({"spec", "services", "Worker"}), nullptr);
  review["request"]["desiredAPIVersion"] = "nvidia.com/v9";
  EXPECT_EQ(review_conversion(review).text_at({"response", "result", "status"}), "Failed");
}

constexpr std::string_view kSet = R"(
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: s}
spec:
  replicas: 1
  template:
    cliques:
    - {name: a, spec: {roleName: a, replicas: 3, podSpec: {containers: [{name: m, image: i}]}}}
    - {name: b, spec: {roleName: b, startsAfter: [a], podSpec: {containers: [{name: m, image: i}]}}}
    podCliqueScalingGroups: [{name: g, cliqueNames: [b]}]
)";

TEST(Sets, GetWhatUsersLeaveOut) {
  Value set = from_yaml(kSet);
  set_defaults_of_set(set);
  const Value& pods = *set.find_at({"spec", "template"});
  EXPECT_EQ(kube::int_at(pods.at("cliques").at(size_t{0}), {"spec", "minAvailable"}, 0), 3);
  EXPECT_EQ(kube::int_at(pods.at("cliques").at(size_t{1}), {"spec", "replicas"}, 0), 1);
  EXPECT_EQ(kube::int_at(pods.at("podCliqueScalingGroups").at(size_t{0}), {"minAvailable"}, 0), 1);
  EXPECT_EQ(pods.text_at({"terminationDelay"}), "4h0m0s");
  EXPECT_TRUE(validate_set(set, nullptr));
}

TEST(Sets, AreRefusedByFieldAndRule) {
  const auto refusal = [](const std::function<void(Value&)>& change) {
    Value set = from_yaml(kSet);
    change(kube::at(set, {"spec", "template"}));
    const Status checked = validate_set(set, nullptr);
    return checked ? std::string() : checked.error().message();
  };
  EXPECT_NE(refusal([](Value& pods) {
              pods["cliques"].mutable_elements()->at(0)["spec"]["startsAfter"].push_back("b");
            }).find("startsAfter must not go in a circle"),
            std::string::npos);
  EXPECT_NE(refusal([](Value& pods) {
              pods["cliques"].mutable_elements()->at(1)["name"] = "a";
            }).find("spec.template.cliques[1].name: Invalid value"),
            std::string::npos);
  EXPECT_NE(refusal([](Value& pods) {
              pods["podCliqueScalingGroups"].mutable_elements()->at(0)["minAvailable"] = 2;
              pods["podCliqueScalingGroups"].mutable_elements()->at(0)["replicas"] = 1;
            }).find("must not be more than replicas, 1"),
            std::string::npos);
  EXPECT_NE(refusal([](Value& pods) {
              pods["cliqueStartupType"] = "Sometimes";
            }).find("CliqueStartupTypeInOrder"),
            std::string::npos);
}

}  // namespace
}  // namespace stator::op
