// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "stator/blocks/block_hash.h"
#include "stator/core/random.h"
#include "stator/epp/ext_proc_stream.h"
#include "stator/epp/pool_watch.h"
#include "stator/kube/yaml.h"

namespace stator::epp {
namespace {

using Mode = wire::ProtocolConfiguration;

json::Value from_yaml(std::string_view text) {
  return std::move(kube::parse_yaml(text, "test").value().at(0));
}

wire::ProcessingRequest headers(const std::map<std::string, std::string>& values,
                                Mode::BodySendMode mode = Mode::FULL_DUPLEX_STREAMED) {
  wire::ProcessingRequest request;
  for (const auto& [key, value] : values) {
    auto& header = *request.mutable_request_headers()->mutable_headers()->add_headers();
    header.set_key(key);
    header.set_raw_value(value);
  }
  request.mutable_request_headers()->set_end_of_stream(false);
  request.mutable_protocol_config()->set_request_body_mode(mode);
  return request;
}

wire::ProcessingRequest body(std::string_view text) {
  wire::ProcessingRequest request;
  request.mutable_request_body()->set_body(std::string(text));
  request.mutable_request_body()->set_end_of_stream(true);
  return request;
}

std::string destination(const StreamAnswer& answer) {
  for (const auto& option :
       answer.responses.at(0).request_headers().response().header_mutation().set_headers()) {
    if (option.header().key() == "x-gateway-destination-endpoint") {
      return option.header().raw_value();
    }
  }
  return "";
}

/// A prompt's words as its tokens, one block each.
class Words final : public PromptReader {
 public:
  Result<std::optional<Prompt>> read(std::string_view path, std::string_view text) override {
    if (path != "/v1/completions") {
      return std::optional<Prompt>();
    }
    if (text.find("refused") != std::string_view::npos) {
      return Error(Code::kInvalidArgument, "the template refuses it");
    }
    std::vector<TokenId> ids;
    for (const char c : text) {
      ids.push_back(TokenId{static_cast<uint32_t>(c)});
    }
    Prompt prompt{.sequences = {}, .tokens = static_cast<uint32_t>(ids.size())};
    blocks::extend_sequences(ids, 4, 0, prompt.sequences);
    return std::optional(std::move(prompt));
  }
};

class Prompts : public ::testing::Test {
 protected:
  void make(const PoolConfig& config = {}) {
    pool_ = EndpointPool::create(clock_, metrics_, config).value();
    pool_->set_endpoints({{.address = "10.0.0.1:80"}, {.address = "10.0.0.2:80"}});
  }
  StreamAnswer ask(std::string_view text, const std::map<std::string, std::string>& more = {},
                   Mode::BodySendMode mode = Mode::FULL_DUPLEX_STREAMED) {
    std::map<std::string, std::string> all = {{":path", "/v1/completions"}};
    all.insert(more.begin(), more.end());
    ExtProcStream stream(*pool_, config_, "r");
    static_cast<void>(stream.on_request(headers(all, mode)));
    return stream.on_request(body(text));
  }

  SystemClock clock_;
  Metrics metrics_;
  StreamConfig config_;
  std::unique_ptr<EndpointPool> pool_;
};

TEST_F(Prompts, TheGatewayRenamesTheModel) {
  make();
  const std::map<std::string, std::string> wanted = {
      {"x-gateway-model-name-rewrite", "llama \"2\""}};
  const StreamAnswer streamed = ask(R"({"prompt":"x", "model" : "ll\u0061ma","n":1.50})", wanted);
  ASSERT_EQ(streamed.responses.size(), 2U);
  EXPECT_EQ(
      streamed.responses[1].request_body().response().body_mutation().streamed_response().body(),
      R"({"prompt":"x", "model" : "llama \"2\"","n":1.50})");
  const StreamAnswer buffered = ask(R"({"model":"a"})", wanted, Mode::BUFFERED);
  EXPECT_EQ(buffered.responses.at(0).request_body().response().body_mutation().body(),
            R"({"model":"llama \"2\""})");
  // The client's own header is taken out before anybody else sees it.
  std::set<std::string> removed;
  for (const auto& key :
       buffered.responses.at(0).request_body().response().header_mutation().remove_headers()) {
    removed.insert(key);
  }
  EXPECT_TRUE(removed.contains("x-gateway-model-name-rewrite"));
}

TEST_F(Prompts, ARenamedBodyDiffersInItsModelOnly) {
  make();
  Random random(7);
  const std::vector<std::string> parts = {"\"a\":[1,{\"model\":2}]", "\"model\": \"x\\u00e9\\\"\"",
                                          "\"prompt\":\"p\"",        "\"n\" : 1e3",
                                          "\"model\":\"last\"",      "\"messages\":[]"};
  for (int round = 0; round < 300; ++round) {
    std::string text = "{";
    for (uint64_t i = random.below(6); i > 0; --i) {
      text += (text.size() > 1 ? ", " : " ") + parts[random.below(parts.size())];
    }
    text += "}";
    const StreamAnswer answer =
        ask(text, {{"x-gateway-model-name-rewrite", "new"}}, Mode::BUFFERED);
    ASSERT_EQ(answer.responses.size(), 1U) << text;
    const auto& common = answer.responses[0].request_body().response();
    auto before = json::parse(text).value();
    if (before.find("model") == nullptr) {
      EXPECT_FALSE(common.has_body_mutation()) << text;
      continue;
    }
    const auto after = json::parse(common.body_mutation().body());
    ASSERT_TRUE(after) << common.body_mutation().body();
    before["model"] = "new";
    EXPECT_EQ(*after, before) << text;
  }
}

TEST_F(Prompts, RewritesShareRequestsByWeight) {
  make();
  pool_->set_rewrites(rewrites_of({from_yaml(R"(
spec:
  poolRef: {name: p}
  rules:
  - matches: [{model: {type: Exact, value: chat}}]
    targets: [{modelRewrite: old, weight: 3}, {modelRewrite: new, weight: 1}]
)")}));
  std::map<std::string, int> counts;
  for (int i = 0; i < 4000; ++i) {
    ++counts[pool_->rewrite_of("chat", "request-" + std::to_string(i))];
  }
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_NEAR(counts["new"], 1000, 150);
  EXPECT_EQ(pool_->rewrite_of("other", "r"), "other");
  EXPECT_EQ(pool_->rewrite_of("chat", "r"), pool_->rewrite_of("chat", "r"));
}

TEST_F(Prompts, AFileNamesRewrites) {
  const auto read =
      read_rewrites(from_yaml("{rewrites: {a: b, c: [{model: d, weight: 2}, {model: e}]}}"));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->at("a").at(0).model, "b");
  EXPECT_EQ(read->at("c").at(0).weight, 2U);
  const auto broken = read_rewrites(from_yaml("{rewrites: {a: [{weight: 1}]}}"));
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message().find("'a'"), std::string::npos);
}

TEST_F(Prompts, GoWhereTheirTokensAreCached) {
  config_.prompts = std::make_shared<Words>();
  make({.block_size = 4, .follows_events = true});
  const std::string text = R"({"prompt":"one two three four five six seven eight nine ten"})";
  // Each endpoint in turn says that it has this prompt: it gets it.
  for (const std::string_view wanted : {"10.0.0.2:80", "10.0.0.1:80"}) {
    make({.block_size = 4, .follows_events = true});
    struct Ids final : EndpointEvents {
      void follow(WorkerId id, const std::string& events) override { ids.emplace(events, id); }
      void unfollow(WorkerId) override {}
      std::map<std::string, WorkerId> ids;
    };
    const auto ids = std::make_shared<Ids>();
    pool_ = EndpointPool::create(clock_, metrics_,
                                 {.block_size = 4, .follows_events = true, .event_port = 5557})
                .value();
    pool_->listen_by(ids);
    pool_->set_endpoints({{.address = "10.0.0.1:80"}, {.address = "10.0.0.2:80"}});
    const std::string where = "tcp://" + std::string(wanted.substr(0, wanted.find(':'))) + ":5557";
    ASSERT_TRUE(ids->ids.contains(where));
    std::vector<TokenId> tokens;
    for (const char c : text) {
      tokens.push_back(TokenId{static_cast<uint32_t>(c)});
    }
    blocks::BlockHasher hasher(4, 0);
    hasher.append(tokens);
    kv::BlocksStored stored;
    for (size_t i = 0; i < hasher.sequences().size(); ++i) {
      stored.blocks.push_back({.external = blocks::ExternalHash(hasher.sequences()[i].value()),
                               .local = hasher.locals()[i]});
    }
    pool_->apply(ids->ids.at(where), {kv::KvEvent{.event_id = 1, .data = stored}});
    EXPECT_EQ(destination(ask(text)), wanted);
  }
}

TEST_F(Prompts, WhatTheModelRefusesIsABadRequest) {
  config_.prompts = std::make_shared<Words>();
  make();
  const StreamAnswer answer = ask(R"({"prompt":"refused"})");
  EXPECT_EQ(answer.responses.at(0).immediate_response().status().code(), 400);
}

}  // namespace
}  // namespace stator::epp
