// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/model_prompts.h"

#include "stator/api/request_parser.h"
#include "stator/frontend/model_assets.h"
#include "stator/frontend/prompt_encoder.h"

namespace stator::epp {
namespace {

class ModelPrompts final : public PromptReader {
 public:
  ModelPrompts(std::shared_ptr<const frontend::ModelAssets> assets, uint32_t block_size,
               const Clock& clock, Metrics& metrics)
      : clock_(clock), encoder_(frontend::FrontendConfig{}, clock, metrics, nullptr) {
    model_.name = "pool";
    model_.block_size = block_size;
    model_.assets = std::move(assets);
  }

  Result<std::optional<Prompt>> read(std::string_view path, std::string_view body) override {
    const std::string_view route = path.substr(0, path.find('?'));
    const bool is_chat = route.ends_with("/chat/completions");
    if (!is_chat && !route.ends_with("/completions")) {
      return std::optional<Prompt>();
    }
    std::string text(body);
    auto counted = is_chat ? read_chat(text) : read_completion(text);
    if (!counted) {
      return std::move(counted.error().error);
    }
    return std::move(*counted);
  }

 private:
  using Counted = api::ApiResult<std::optional<Prompt>>;

  static Prompt prompt_of(tokenizer::PromptIds ids) {
    return {.sequences = std::move(ids.sequences), .tokens = static_cast<uint32_t>(ids.ids.size())};
  }
  static Prompt counted(tokenizer::PromptIds ids) {
    std::vector<TokenId> tokens = std::move(ids.ids);
    const auto count = static_cast<uint32_t>(tokens.size());
    return {.sequences = std::move(ids.sequences), .tokens = count, .ids = std::move(tokens)};
  }

  Counted read_chat(std::string& body) {
    STATOR_TRY(const api::ChatRequest request, api::parse_chat_request(body, limits()));
    STATOR_TRY(std::string text,
               encoder_.render_chat(request.chat, model_, clock_.wall_now(), nullptr));
    STATOR_TRY(tokenizer::PromptIds ids,
               encoder_.encode_text(std::move(text), model_,
                                    options(request.options, tokenizer::AddSpecial::kNo)));
    return std::optional(counted(std::move(ids)));
  }

  /// Of several prompts the first one: they go to one endpoint.
  Counted read_completion(std::string& body) {
    STATOR_TRY(api::CompletionRequest request, api::parse_completion_request(body, limits()));
    if (request.prompts.empty()) {
      return std::optional<Prompt>();
    }
    const auto how = options(request.options, tokenizer::AddSpecial::kYes);
    api::Prompt& first = request.prompts.front();
    if (auto* ids = std::get_if<std::vector<TokenId>>(&first)) {
      return std::optional(prompt_of(encoder_.hash_ids(std::move(*ids), model_, how.hash_seed)));
    }
    STATOR_TRY(tokenizer::PromptIds ids,
               encoder_.encode_text(std::move(std::get<std::string>(first)), model_, how));
    const bool is_only = request.prompts.size() == 1;
    return std::optional(is_only ? counted(std::move(ids)) : prompt_of(std::move(ids)));
  }

  static api::ParseLimits limits() {
    api::ParseLimits limits;
    limits.guided_decoding = true;  // whoever answers decides what it can do
    limits.model_required = false;
    return limits;
  }

  static frontend::PromptEncoder::TextOptions options(const api::GenerateOptions& asked,
                                                      tokenizer::AddSpecial add_special) {
    return {.add_special = add_special, .hash_seed = blocks::hash_seed({}, asked.cache_salt)};
  }

  const Clock& clock_;
  frontend::PromptEncoder encoder_;
  frontend::ServedModel model_;
};

}  // namespace

Result<std::shared_ptr<PromptReader>> make_model_prompts(const std::string& folder,
                                                         uint32_t block_size, const Clock& clock,
                                                         Metrics& metrics) {
  STATOR_TRY(auto assets, frontend::load_model_assets(folder));
  return std::shared_ptr<PromptReader>(
      std::make_shared<ModelPrompts>(std::move(assets), block_size, clock, metrics));
}

}  // namespace stator::epp
