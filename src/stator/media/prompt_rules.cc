// SPDX-License-Identifier: Apache-2.0
#include "stator/media/prompt_rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace stator::media {
namespace {

constexpr uint64_t kTokensMax = 1 << 24;
// Qwen2-VL's processor, where a folder says nothing.
constexpr uint64_t kPixelsMinDefault = uint64_t{56} * 56;
constexpr uint64_t kPixelsMaxDefault = uint64_t{28} * 28 * 1280;
constexpr uint32_t kPatchDefault = 14;
constexpr uint32_t kMergeDefault = 2;
constexpr double kAspectMax = 200;  // beyond, the processor refuses

std::optional<TokenId> token_of(const json::Value& config,
                                std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const auto value = config.at(name).as_uint64();
    if (value && *value < std::numeric_limits<TokenId>::max()) {
      return static_cast<TokenId>(*value);
    }
  }
  return std::nullopt;
}

uint64_t number_of(const json::Value& object, std::initializer_list<std::string_view> names,
                   uint64_t otherwise) {
  for (const std::string_view name : names) {
    if (const auto value = object.at(name).as_uint64(); value && *value > 0) {
      return *value;
    }
  }
  return otherwise;
}

bool has_object(const json::Value& config, std::string_view name) {
  const json::Value* value = config.find(name);
  return value != nullptr && value->is_object();
}

/// Whole multiples of `side`, halves to the even one as in Python.
double round_to(double value, double side) {
  return std::nearbyint(value / side) * side;
}

}  // namespace

PromptRules PromptRules::read(const json::Value& config, const json::Value& processor) {
  PromptRules rules;
  rules.image_ = token_of(config, {"image_token_id", "image_token_index"});
  rules.video_ = token_of(config, {"video_token_id", "video_token_index"});
  rules.audio_ = token_of(config, {"audio_token_id", "audio_token_index"});
  rules.image_begin_ = token_of(config, {"vision_start_token_id"});
  rules.image_end_ = token_of(config, {"vision_end_token_id"});
  // Qwen-Omni keeps what understands below what speaks.
  const json::Value* towers =
      has_object(config, "thinker_config") ? config.find("thinker_config") : &config;
  if (has_object(*towers, "vision_config")) {
    rules.kinds_.add(inference::MediaKind::kImage);
    if (rules.video_) {
      rules.kinds_.add(inference::MediaKind::kVideo);
    }
  }
  if (has_object(*towers, "audio_config")) {
    rules.kinds_.add(inference::MediaKind::kAudio);
  }
  const std::string_view type = config.at("model_type").text();
  if (type == "llava") {
    rules.read_fixed(config);
  } else if (type == "qwen2_vl" || type == "qwen2_5_vl" || type == "qwen3_vl" ||
             type == "qwen3_vl_moe") {
    rules.read_grid(config, processor);
  }
  return rules;
}

void PromptRules::read_grid(const json::Value& config, const json::Value& processor) {
  const json::Value& vision = config.at("vision_config");
  const json::Value& size = processor.at("size");
  const uint64_t patch =
      number_of(processor, {"patch_size"}, number_of(vision, {"patch_size"}, kPatchDefault));
  const uint64_t merge = number_of(processor, {"merge_size"},
                                   number_of(vision, {"spatial_merge_size"}, kMergeDefault));
  if (patch * merge > 4096) {
    return;
  }
  grid_.side = static_cast<uint32_t>(patch * merge);
  grid_.pixels_min = number_of(processor, {"min_pixels"},
                               number_of(size, {"shortest_edge", "min_pixels"}, kPixelsMinDefault));
  grid_.pixels_max = number_of(processor, {"max_pixels"},
                               number_of(size, {"longest_edge", "max_pixels"}, kPixelsMaxDefault));
}

void PromptRules::read_fixed(const json::Value& config) {
  const json::Value& vision = config.at("vision_config");
  const uint64_t patch = number_of(vision, {"patch_size"}, 0);
  const uint64_t side = number_of(vision, {"image_size"}, 0);
  const std::string_view tower = vision.at("model_type").text();
  if (patch == 0 || side < patch || side > 16384) {
    return;
  }
  uint64_t tokens = (side / patch) * (side / patch);
  tokens += tower == "clip_vision_model" ? 1 : 0;  // the class token
  if (config.at("vision_feature_select_strategy").text() != "full") {
    tokens -= 1;  // "default" drops the first one
  }
  fixed_ = static_cast<uint32_t>(std::min(tokens, kTokensMax));
}

std::optional<TokenId> PromptRules::placeholder(inference::MediaKind kind) const {
  switch (kind) {
    case inference::MediaKind::kImage:
      return image_;
    case inference::MediaKind::kAudio:
      return audio_;
    case inference::MediaKind::kVideo:
      return video_;
  }
  return std::nullopt;
}

std::optional<uint32_t> PromptRules::image_tokens(ImageSize size) const {
  if (fixed_ > 0) {
    return fixed_;
  }
  if (grid_.side == 0 || size.width == 0 || size.height == 0) {
    return std::nullopt;
  }
  // smart_resize() of Qwen2-VL's image processor.
  const double width = size.width;
  const double height = size.height;
  if (std::max(width, height) / std::min(width, height) > kAspectMax) {
    return std::nullopt;
  }
  const double side = grid_.side;
  double wide = round_to(width, side);
  double high = round_to(height, side);
  const auto pixels_max = static_cast<double>(grid_.pixels_max);
  const auto pixels_min = static_cast<double>(grid_.pixels_min);
  if (wide * high > pixels_max) {
    const double beta = std::sqrt(height * width / pixels_max);
    wide = std::max(side, std::floor(width / beta / side) * side);
    high = std::max(side, std::floor(height / beta / side) * side);
  } else if (wide * high < pixels_min) {
    const double beta = std::sqrt(pixels_min / (height * width));
    wide = std::ceil(width * beta / side) * side;
    high = std::ceil(height * beta / side) * side;
  }
  const double tokens = wide / side * (high / side);
  return tokens >= 1 && tokens <= static_cast<double>(kTokensMax)
             ? std::optional(static_cast<uint32_t>(tokens))
             : std::nullopt;
}

}  // namespace stator::media
