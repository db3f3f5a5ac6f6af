// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/object.h"

#include <gtest/gtest.h>

namespace stator::kube {
namespace {

TEST(Object, QuantitiesAreReadInThousandths) {
  EXPECT_EQ(parse_quantity_milli("500m").value(), 500);
  EXPECT_EQ(parse_quantity_milli("2").value(), 2000);
  EXPECT_EQ(parse_quantity_milli("8Gi").value(), 8'589'934'592'000);
  EXPECT_EQ(parse_quantity_milli("1e3").value(), 1'000'000);
  EXPECT_EQ(parse_quantity_milli("0").value(), 0);
  EXPECT_FALSE(parse_quantity_milli("eight"));
  EXPECT_FALSE(parse_quantity_milli("8GB"));
}

TEST(Object, EqualityOfMeaningIgnoresOrderOfMembers) {
  const auto a = json::parse(R"({"x":1,"y":[{"a":1,"b":2}]})").value();
  const auto b = json::parse(R"({"y":[{"b":2,"a":1}],"x":1})").value();
  EXPECT_TRUE(same(a, b));
  EXPECT_EQ(json::to_text(sorted(a)), json::to_text(sorted(b)));
  EXPECT_FALSE(same(a, json::parse(R"({"x":1,"y":[]})").value()));
}

TEST(Object, FindsResourcesByVersionAndKind) {
  const auto found = find_resource("nvidia.com/v1alpha1", "DynamoGraphDeployment");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->plural, "dynamographdeployments");
  EXPECT_EQ(found->version, "v1alpha1");
  EXPECT_FALSE(find_resource("example.org/v1", "DynamoGraphDeployment"));
}

TEST(Object, HashesLikeEverybody) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(short_hash("abc"), "ba7816bf");
}

}  // namespace
}  // namespace stator::kube
