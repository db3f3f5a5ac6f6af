// SPDX-License-Identifier: Apache-2.0
#include "stator/api/pool_request.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "stator/api/test/request_cases.h"

namespace stator::api {
namespace {

using Ids = std::vector<TokenId>;

PoolCall parsed(PoolKind kind, std::string body) {
  auto result = parse_pool_call(body, kind, {});
  if (!result.has_value()) {
    ADD_FAILURE() << body << " → " << result.error().message();
    return {};
  }
  return std::move(*result);
}

/// The field that is to blame.
std::string blamed(PoolKind kind, std::string body) {
  auto result = parse_pool_call(body, kind, {});
  if (result.has_value()) {
    return "accepted";
  }
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument) << body;
  return result.error().param;
}

TEST(PoolRequest, ReadsEveryFormOfInput) {
  const auto inputs = [](std::string_view input) {
    return parsed(PoolKind::kEmbeddings, fmt::format(R"({{"model":"m","input":{}}})", input))
        .inputs;
  };
  EXPECT_EQ(inputs(R"("a")"), (std::vector<PoolInput>{std::string("a")}));
  EXPECT_EQ(inputs(R"(["a","b"])"), (std::vector<PoolInput>{std::string("a"), std::string("b")}));
  EXPECT_EQ(inputs("[1,2]"), (std::vector<PoolInput>{Ids{1, 2}}));
  EXPECT_EQ(inputs("[[1,2],[3]]"), (std::vector<PoolInput>{Ids{1, 2}, Ids{3}}));
}

TEST(PoolRequest, NamesTheFieldThatIsWrong) {
  const struct {
    std::string_view body;
    std::string_view field;
  } cases[] = {
      {R"({"model":"m"})", "input"},
      {R"({"model":"m","input":null})", "input"},
      {R"({"model":"m","input":[]})", "input"},
      {R"({"model":"m","input":""})", "input"},
      {R"({"model":"m","input":["a",""]})", "input[1]"},
      {R"({"model":"m","input":["a",1]})", "input[1]"},
      {R"({"model":"m","input":[1,-1]})", "input[1]"},
      {R"({"model":"m","input":[[1],[]]})", "input[1]"},
      {R"({"model":"m","input":{"text":"a"}})", "input"},
      {R"({"model":"m","input":"a","encoding_format":"hex"})", "encoding_format"},
      {R"({"model":"m","input":"a","dimensions":0})", "dimensions"},
      {R"({"model":"m","input":"a","dimensions":1.5})", "dimensions"},
      {R"({"model":"m","input":"a","truncate_prompt_tokens":-2})", "truncate_prompt_tokens"},
      {R"({"model":"m","input":"a","truncate_prompt_tokens":0})", "truncate_prompt_tokens"},
      {R"({"model":"m","input":"a","cache_salt":""})", "cache_salt"},
      {R"({"model":"m","input":"a","user":7})", "user"},
      {R"({"model":"m","input":"a","messages":[{"role":"user","content":"b"}]})", "input"},
      {R"({"input":"a"})", "model"},
  };
  for (const auto& [body, field] : cases) {
    EXPECT_EQ(blamed(PoolKind::kEmbeddings, std::string(body)), field) << body;
  }
}

TEST(PoolRequest, TakesAsManyInputsAsOpenAi) {
  const auto body = [](size_t count) {
    std::string texts = R"("a")";
    for (size_t i = 1; i < count; ++i) {
      texts += R"(,"a")";
    }
    return fmt::format(R"({{"model":"m","input":[{}]}})", texts);
  };
  EXPECT_EQ(parsed(PoolKind::kEmbeddings, body(kMaxPoolInputs)).inputs.size(), kMaxPoolInputs);
  EXPECT_EQ(blamed(PoolKind::kEmbeddings, body(kMaxPoolInputs + 1)), "input");
}

TEST(PoolRequest, ReadsRerankersDocuments) {
  const PoolCall call = parsed(
      PoolKind::kRerank,
      R"({"model":"m","query":"q","documents":["a",{"text":"b"}],"top_n":1,"return_documents":true})");

  EXPECT_EQ(call.queries, (std::vector<PoolInput>{std::string("q")}));
  EXPECT_EQ(call.inputs, (std::vector<PoolInput>{std::string("a"), std::string("b")}));
  EXPECT_EQ(call.top_n, 1U);
  EXPECT_EQ(call.return_documents, true);
  EXPECT_EQ(blamed(PoolKind::kRerank, R"({"model":"m","documents":["a"]})"), "query");
  EXPECT_EQ(blamed(PoolKind::kRerank, R"({"model":"m","query":"q"})"), "documents");
  EXPECT_EQ(blamed(PoolKind::kRerank, R"({"model":"m","query":"q","documents":[]})"), "documents");
  EXPECT_EQ(blamed(PoolKind::kRerank, R"({"model":"m","query":"q","documents":[{"x":1}]})"),
            "documents[0]");
  EXPECT_EQ(blamed(PoolKind::kRerank, R"({"model":"m","query":"q","texts":[{"text":null}]})"),
            "texts[0]");
  EXPECT_EQ(blamed(PoolKind::kRerank, R"({"model":"m","query":{"text":null},"texts":["a"]})"),
            "query");
  EXPECT_EQ(blamed(PoolKind::kCohereEmbed, R"({"model":"m","inputs":[]})"), "texts");
}

TEST(PoolRequest, ScoresOneToOneOneToManyAndManyToMany) {
  const auto score = [](std::string_view first, std::string_view second) {
    return fmt::format(R"({{"model":"m","text_1":{},"text_2":{}}})", first, second);
  };
  EXPECT_EQ(parsed(PoolKind::kScore, score(R"("a")", R"("b")")).queries.size(), 1U);
  EXPECT_EQ(parsed(PoolKind::kScore, score(R"("a")", R"(["b","c"])")).inputs.size(), 2U);
  EXPECT_EQ(parsed(PoolKind::kScore, score(R"(["a","d"])", R"(["b","c"])")).queries.size(), 2U);
  EXPECT_EQ(blamed(PoolKind::kScore, score(R"(["a","d"])", R"(["b"])")), "text_1");
  EXPECT_EQ(
      parsed(PoolKind::kScore, R"({"model":"m","queries":"a","documents":["b"]})").inputs.size(),
      1U);
}

TEST(PoolRequest, UnknownFieldsAreNamed) {
  EXPECT_EQ(parsed(PoolKind::kPooling, R"({"model":"m","input":"a","colour":1})").ignored_fields,
            std::vector<std::string>{"colour"});
}

TEST(PoolRequest, EveryListedFieldIsRead) {
  for (const PoolKind kind : {PoolKind::kEmbeddings, PoolKind::kRerank, PoolKind::kScore,
                              PoolKind::kClassify, PoolKind::kPooling}) {
    for (const std::string_view field : pool_fields(kind)) {
      std::string body = fmt::format(R"({{"{}":null}})", field);
      EXPECT_FALSE(parse_pool_call(body, kind, {.strict_fields = true})
                       .error()
                       .message()
                       .contains("unknown"))
          << field;
    }
  }
}

}  // namespace
}  // namespace stator::api
