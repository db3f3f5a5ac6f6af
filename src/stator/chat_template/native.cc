// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/native.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/meter.h"

namespace stator::chat_template {
namespace {

constexpr size_t kBytesPerStep = 64;

}  // namespace

std::optional<NativeFormat> find_native_format(std::string_view name) {
  static constexpr std::pair<std::string_view, NativeFormat> kNames[] = {
      {"deepseek_v3_2", NativeFormat::kDeepseekV32}, {"deepseek_v32", NativeFormat::kDeepseekV32},
      {"deepseek_v4", NativeFormat::kDeepseekV4},    {"harmony", NativeFormat::kHarmony},
      {"gpt_oss", NativeFormat::kHarmony},
  };
  const auto* found =
      std::ranges::find(kNames, name, &std::pair<std::string_view, NativeFormat>::first);
  return found == std::end(kNames) ? std::nullopt : std::optional(found->second);
}

namespace detail {

const Value* NativeInput::option(std::string_view name) const {
  const Value* found = extra.find(name);
  return found == nullptr || found->is_none() ? nullptr : found;
}

std::string_view NativeInput::text_option(std::string_view name, std::string_view otherwise) const {
  const Value* found = option(name);
  return found != nullptr && found->is_string() ? found->text() : otherwise;
}

void PromptWriter::mark(std::string_view text) {
  if (text.size() > bytes_max_ - std::min(bytes_max_, prompt_.text.size())) {
    fail("the prompt is longer than " + std::to_string(bytes_max_) + " bytes", Code::kTooLarge);
  }
  if (meter_ != nullptr) {
    meter_->charge(1 + text.size() / kBytesPerStep);
  }
  prompt_.text += text;
}

void PromptWriter::data(std::string_view text) {
  const size_t begin = prompt_.text.size();
  mark(text);
  if (text.empty()) {
    return;
  }
  if (!prompt_.data.empty() && prompt_.data.back().end == begin) {
    prompt_.data.back().end = prompt_.text.size();
  } else {
    prompt_.data.push_back({begin, prompt_.text.size()});
  }
}

void PromptWriter::data_json(const Value& value) {
  std::string text;
  JsonStyle style;
  style.bytes_max = bytes_max_;
  write_json(value, style, text);
  data(text);
}

std::string_view message_text(const Value& message, std::string_view name) {
  const Value* found = message.find(name);
  if (found == nullptr || found->is_none()) {
    return {};
  }
  if (!found->is_string()) {
    fail("the member '" + std::string(name) + "' of a message must be text");
  }
  return found->text();
}

}  // namespace detail
}  // namespace stator::chat_template
