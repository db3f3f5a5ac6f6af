// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/openapi.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "stator/json/value.h"

namespace stator::frontend {
namespace {

TEST(OpenApi, HasEveryRouteAndEveryField) {
  const auto routes = list_routes();
  const auto document = json::parse(make_openapi(routes));
  ASSERT_TRUE(document.has_value());
  for (const RouteRow& row : routes) {
    std::string method(row.method);
    std::ranges::transform(method, method.begin(), [](char c) { return c | 0x20; });
    EXPECT_NE(document->find_at({"paths", row.path, method}), nullptr) << row.path;
  }
  const json::Value* embeddings =
      document->find_at({"paths", "/v1/embeddings", "post", "requestBody", "content",
                         "application/json", "schema", "properties"});
  ASSERT_NE(embeddings, nullptr);
  EXPECT_NE(embeddings->find("dimensions"), nullptr);
  EXPECT_EQ(embeddings->find("documents"), nullptr);
}

TEST(OpenApi, OperationsHaveNamesOfTheirOwn) {
  const auto document = json::parse(make_openapi(list_routes()));
  ASSERT_TRUE(document.has_value());
  std::vector<std::string> ids;
  for (const json::Member& path : document->find("paths")->members()) {
    for (const json::Member& operation : path.value.members()) {
      ids.emplace_back(operation.value.text_at({"operationId"}));
    }
  }
  std::ranges::sort(ids);
  EXPECT_EQ(std::ranges::adjacent_find(ids), ids.end());
}

}  // namespace
}  // namespace stator::frontend
