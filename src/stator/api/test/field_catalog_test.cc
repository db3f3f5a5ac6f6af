// SPDX-License-Identifier: Apache-2.0
#include "stator/api/field_catalog.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "stator/api/pool_request.h"
#include "stator/api/request_parser.h"
#include "stator/json/value.h"

namespace stator::api {
namespace {

constexpr BodyKind kKinds[] = {BodyKind::kChat,       BodyKind::kCompletion, BodyKind::kTokenize,
                               BodyKind::kDetokenize, BodyKind::kEmbeddings, BodyKind::kRerank,
                               BodyKind::kScore,      BodyKind::kClassify,   BodyKind::kPooling};

TEST(FieldCatalog, EveryFieldThatIsReadHasASchema) {
  for (const BodyKind kind : kKinds) {
    const auto fields = body_fields(kind);
    EXPECT_TRUE(std::ranges::adjacent_find(fields) == fields.end()) << "a field twice";
    EXPECT_GE(fields.size(), 2U);
    for (const std::string_view field : fields) {
      EXPECT_FALSE(field_schema(kind, field).empty())
          << field << ": add it to the table in field_catalog.cc";
    }
    EXPECT_TRUE(json::parse(body_schema(kind)).has_value()) << body_schema(kind);
  }
}

TEST(FieldCatalog, EveryFieldOfChatIsRead) {
  for (const std::string_view field : body_fields(BodyKind::kChat)) {
    std::string body = fmt::format(
        R"({{"model":"m","messages":[{{"role":"user","content":"a"}}],"{}":null}})", field);
    const auto request = parse_chat_request(body, {.guided_decoding = true});
    if (request) {
      EXPECT_TRUE(request->options.ignored_fields.empty()) << field;
    }
  }
}

}  // namespace
}  // namespace stator::api
