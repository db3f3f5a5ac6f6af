// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "stator/core/ids.h"
#include "stator/inference/media.h"
#include "stator/json/value.h"
#include "stator/media/image_header.h"

namespace stator::media {

/// Which tokens stand for media in a model's prompts, and how many. Read from the model's folder;
/// what it does not say is unknown, and then prompts are counted as if a medium were one token.
///
/// Counts are those of Hugging Face's processors: Qwen2-VL and its successors (smart_resize),
/// LLaVA with one size for all images.
class PromptRules {
 public:
  PromptRules() = default;
  /// `config`: config.json. `processor`: preprocessor_config.json, or an empty object.
  static PromptRules read(const json::Value& config, const json::Value& processor);

  /// What its configuration has parts for: a vision tower, an audio tower, tokens of videos.
  inference::MediaKinds kinds() const { return kinds_; }
  /// The token that a template writes once for each medium of the kind.
  std::optional<TokenId> placeholder(inference::MediaKind kind) const;
  /// What stands around an image's placeholder where a template writes none of them.
  std::optional<TokenId> image_begin() const { return image_begin_; }
  std::optional<TokenId> image_end() const { return image_end_; }
  /// How many tokens an image of that size becomes; nothing: not known.
  std::optional<uint32_t> image_tokens(ImageSize size) const;

 private:
  /// patch · merge pixels are a token's side; 0: not of this family.
  struct Grid {
    uint32_t side = 0;
    uint64_t pixels_min = 0;
    uint64_t pixels_max = 0;
  };
  void read_grid(const json::Value& config, const json::Value& processor);
  void read_fixed(const json::Value& config);

  inference::MediaKinds kinds_;
  std::optional<TokenId> image_;
  std::optional<TokenId> audio_;
  std::optional<TokenId> video_;
  std::optional<TokenId> image_begin_;
  std::optional<TokenId> image_end_;
  Grid grid_;
  uint32_t fixed_ = 0;
};

}  // namespace stator::media
