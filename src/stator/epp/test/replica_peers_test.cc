// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/replica_peers.h"

#include <gtest/gtest.h>

#include "stator/epp/pool_watch.h"

namespace stator::epp {
namespace {

using json::Value;
using Addresses = std::vector<std::string>;

std::vector<Value> list(std::string_view text) {
  return json::parse(text).value().elements();
}

TEST(ReplicaPeers, AreReadyEndpointsAtTheNamedPort) {
  const auto slices = list(R"([
    {"addressType":"IPv4","ports":[{"name":"grpc","port":9002},{"name":"replica-agg","port":9010}],
     "endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true}},
                  {"addresses":["10.0.0.2"],"conditions":{"ready":false}},
                  {"addresses":["10.0.0.3"]}]},
    {"addressType":"IPv6","ports":[{"name":"replica-agg","port":9010}],
     "endpoints":[{"addresses":["fd00::1"]}]},
    {"addressType":"IPv4","ports":[{"name":"grpc","port":9002}],
     "endpoints":[{"addresses":["10.0.0.9"]}]}])");
  EXPECT_EQ(replicas_of(slices), (Addresses{"10.0.0.1:9010", "10.0.0.3:9010", "[fd00::1]:9010"}));
}

TEST(PoolWatch, KnowsWhichWorkerIsInWhichPod) {
  const Instances instances = instances_of(list(R"([
    {"metadata":{"name":"w-1-abc","labels":{"stator.dev/pod":"w-1"}},
     "spec":{"data":{"stator":{"instance_id":77}}}},
    {"metadata":{"name":"w-2"},
     "spec":{"data":{"endpoints":{"ns/backend/generate":{"instance_id":88}}}}},
    {"metadata":{"name":"w-3"},"spec":{"data":{}}}])"));
  EXPECT_EQ(instances, (Instances{{"w-1", "77"}, {"w-2", "88"}}));
  const Value pool = json::parse(R"({"spec":{"selector":{"matchLabels":{"a":"b"}},
                                             "targetPorts":[{"number":8000}]}})")
                         .value();
  const auto pods = list(R"([{"metadata":{"name":"w-2","labels":{"a":"b"}},"status":{
    "podIP":"10.0.0.2","conditions":[{"type":"Ready","status":"True"}]}}])");
  const auto endpoints = endpoints_of(pool, pods, instances);
  ASSERT_EQ(endpoints.size(), 1U);
  EXPECT_EQ(endpoints[0].instance, "88");
}

}  // namespace
}  // namespace stator::epp
