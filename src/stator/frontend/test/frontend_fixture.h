// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/api/request_parser.h"
#include "stator/core/assert.h"
#include "stator/frontend/model_assets.h"
#include "stator/frontend/model_catalog.h"
#include "stator/frontend/prepare.h"
#include "stator/frontend/prompt_encoder.h"
#include "stator/net/http_server.h"

namespace stator::frontend {

/// Records what an answer does with its exchange.
class FakeExchange final : public net::HttpExchange {
 public:
  FakeExchange() : request_("POST", "/") {}
  explicit FakeExchange(net::HttpRequest request) : request_(std::move(request)) {}

  net::HttpRequest& request() override { return request_; }
  net::Shard& shard() override {
    ADD_FAILURE() << "answers do not ask for their shard";
    std::abort();
  }
  void set_observer(net::ExchangeObserver* to_tell) override { observer = to_tell; }
  void respond(int code, std::string_view type, std::string_view body,
               std::span<const net::HttpHeader> list) override {
    EXPECT_FALSE(started || ended);
    begin(code, type, list);
    text = body;
    ended = true;
  }
  void start_stream(int code, std::string_view type,
                    std::span<const net::HttpHeader> list) override {
    EXPECT_FALSE(started || ended);
    begin(code, type, list);
    started = true;
  }
  void write(std::string_view bytes) override {
    EXPECT_TRUE(started && !ended);
    text += bytes;
  }
  void finish() override {
    EXPECT_TRUE(started && !ended);
    ended = true;
  }
  void abort() override { finish(); }
  size_t buffered_bytes() const override { return 0; }
  bool above_high_water() const override { return false; }

  std::string header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) {
        return value;
      }
    }
    return "";
  }

  net::ExchangeObserver* observer = nullptr;
  bool started = false;
  bool ended = false;
  int status = 0;
  std::string content_type;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string text;

 private:
  void begin(int code, std::string_view type, std::span<const net::HttpHeader> list) {
    status = code;
    content_type = type;
    for (const net::HttpHeader& item : list) {
      headers.emplace_back(item.name, item.value);
    }
  }
  net::HttpRequest request_;
};

inline std::string demo_model_dir() {
  return STATOR_SOURCE_DIR "/models/demo";
}

/// The demo model's texts, read once per process.
inline std::shared_ptr<const ModelAssets> demo_assets() {
  static const std::shared_ptr<const ModelAssets> assets = [] {
    auto loaded = load_model_assets(demo_model_dir());
    STATOR_ASSERT(loaded.has_value(), "models/demo can be read");
    return std::move(*loaded);
  }();
  return assets;
}

/// The demo model as a catalog would serve it, without a router.
inline std::shared_ptr<ServedModel> demo_model(uint32_t context_length = 2048) {
  auto model = std::make_shared<ServedModel>();
  model->name = "demo";
  model->context_length = context_length;
  model->assets = demo_assets();
  model->vocab_size = model->assets->tokenizer->vocab_size();
  model->eos_token_ids = model->assets->eos_token_ids;
  return model;
}

inline std::vector<TokenId> tokens_of(std::string_view text) {
  std::vector<TokenId> tokens;
  EXPECT_TRUE(demo_assets()->tokenizer->encode(text, {}, tokens).has_value());
  return tokens;
}

/// Requests as clients send them, prepared as a shard does it.
class PrepareFixture : public ::testing::Test {
 protected:
  PrepareContext context() {
    return {.config = config_,
            .encoder = encoder_,
            .http = http_,
            .request_id = "11111111-2222-4333-8444-555555555555",
            .wall_now = WallTime(std::chrono::seconds(1'700'000'000))};
  }
  api::ApiResult<GenerationPlan> chat(std::string body) {
    auto request = api::parse_chat_request(body, {.nvext_enabled = config_.trusts_body_hints()});
    if (!request) {
      return std::move(request.error());
    }
    return prepare_chat(std::move(*request), {model_, {}}, context());
  }
  api::ApiResult<GenerationPlan> completion(std::string body) {
    auto request = api::parse_completion_request(body, {});
    if (!request) {
      return std::move(request.error());
    }
    return prepare_completion(std::move(*request), {model_, adapter_}, context());
  }

  std::string adapter_;  ///< completions are for it
  FrontendConfig config_;
  SimClock clock_;
  Metrics metrics_;
  PromptEncoder encoder_{config_, clock_, metrics_, nullptr};
  net::HttpRequest http_{"POST", "/v1/chat/completions"};
  std::shared_ptr<ServedModel> model_ = demo_model();
};

/// A catalog of models that are named by their folders, and what it stands on.
class CatalogTest : public ::testing::Test {
 protected:
  SimClock clock_;
  Metrics metrics_;
  FrontendConfig config_;
  router::ReceiptLog receipts_;
  ModelCatalog catalog_{
      {},
      {.resolve_path = [](const std::string& path) { return Result<std::string>(path); }},
      clock_,
      metrics_,
      receipts_};
};

}  // namespace stator::frontend
