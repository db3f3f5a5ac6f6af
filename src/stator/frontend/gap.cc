// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/gap.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace stator::frontend {
namespace {

/// Texts around the two ends of a gap, as models write it that were trained to fill one.
struct GapMarkers {
  std::string_view before;
  std::string_view between;
  std::string_view behind;
};
constexpr GapMarkers kGapMarkers[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},     // Qwen, CodeGemma
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},           // StarCoder, Granite
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},           // SantaCoder
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},     // DeepSeek
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},                             // Code Llama
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},  // GLM
};

}  // namespace

api::ApiStatus add_suffix(api::CompletionRequest& request, const ServedModel& model) {
  const tokenizer::Tokenizer& tokenizer = *model.assets->tokenizer;
  for (const GapMarkers& markers : kGapMarkers) {
    const auto before = tokenizer.find(markers.before);
    const auto between = tokenizer.find(markers.between);
    const auto behind = tokenizer.find(markers.behind);
    if (!before || !between || !behind) {
      continue;
    }
    std::vector<TokenId> end = {*between};
    STATOR_CHECK(tokenizer.encode(request.suffix, {}, end));
    end.push_back(*behind);
    for (api::Prompt& prompt : request.prompts) {
      std::vector<TokenId> ids = {*before};
      if (const auto* text = std::get_if<std::string>(&prompt)) {
        STATOR_CHECK(tokenizer.encode(*text, {}, ids));
      } else {
        const auto& given = std::get<std::vector<TokenId>>(prompt);
        ids.insert(ids.end(), given.begin(), given.end());
      }
      ids.insert(ids.end(), end.begin(), end.end());
      prompt = std::move(ids);
    }
    return {};
  }
  return api::unsupported_error(
      "suffix", fmt::format("suffix is not supported by model '{}': its vocabulary has no tokens "
                            "for a gap to fill. Put what is needed into the prompt",
                            model.name));
}

}  // namespace stator::frontend
