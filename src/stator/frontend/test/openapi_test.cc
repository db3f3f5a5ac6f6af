// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/openapi.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "stator/api/responses_request.h"
#include "stator/json/value.h"
#include "stator/protocols/anthropic/reader.h"

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

json::Value document_of_routes() {
  auto document = json::parse(make_openapi(list_routes()));
  EXPECT_TRUE(document.has_value());
  return document ? std::move(*document) : json::Value();
}

TEST(OpenApi, EveryOperationIsDescribed) {
  const json::Value document = document_of_routes();
  for (const json::Member& path : document.find("paths")->members()) {
    for (const json::Member& operation : path.value.members()) {
      EXPECT_FALSE(operation.value.text_at({"summary"}).empty())
          << operation.key << ' ' << path.key << ": add it to kOperations in openapi.cc";
      const json::Value* content = operation.value.find_at({"responses", "200", "content"});
      ASSERT_NE(content, nullptr);
      EXPECT_FALSE(content->members().empty()) << path.key;
      EXPECT_EQ(path.key.find("{id}") != std::string_view::npos,
                json::to_text(operation.value.at("parameters")).contains(R"("in":"path")"));
    }
  }
}

/// All texts after `mark` up to the next quotation mark.
std::vector<std::string> names_after(std::string_view text, std::string_view mark) {
  std::vector<std::string> names;
  for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at)) {
    at += mark.size();
    names.emplace_back(text.substr(at, text.find('"', at) - at));
  }
  return names;
}

TEST(OpenApi, EveryReferenceLeadsSomewhere) {
  const json::Value document = document_of_routes();
  const auto names = names_after(json::to_text(document), "#/components/schemas/");
  EXPECT_GT(names.size(), 50U);
  for (const std::string& name : names) {
    EXPECT_NE(document.find_at({"components", "schemas", name}), nullptr) << name;
  }
}

TEST(OpenApi, ShapesHaveTheFieldsThatTheirReadersKnow) {
  const json::Value document = document_of_routes();
  const auto check = [&](std::string_view shape, const std::vector<std::string_view>& fields) {
    const json::Value* schema = document.find_at({"components", "schemas", shape});
    ASSERT_NE(schema, nullptr);
    const std::string refused = json::to_text(schema->at("x-stator-refused"));
    for (const std::string_view field : fields) {
      EXPECT_TRUE(schema->find_at({"properties", field}) != nullptr ||
                  refused.contains('"' + std::string(field) + '"'))
          << shape << " lacks " << field;
    }
  };
  check("MessagesRequest", protocols::anthropic::message_fields());
  check("CountRequest", protocols::anthropic::message_fields());
  check("ResponsesRequest", api::responses_fields());
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
