// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>

namespace stator::fake_engine {
namespace {

using tokenizer::SkipSpecial;

bool is_eos(const FakeModel& model, TokenId id) {
  return std::ranges::find(model.eos_token_ids, id) != model.eos_token_ids.end();
}

std::string ids_only_text(const FakeModel& model, TokenId id) {
  if (id == kIdsOnlyBos) {
    return "<s>";
  }
  if (is_eos(model, id)) {
    return "</s>";
  }
  if (id >= kIdsOnlyFirstByte && id < kIdsOnlyFirstByte + 256) {
    return std::string(1, static_cast<char>(id - kIdsOnlyFirstByte));
  }
  return fmt::format(" t{}", id);
}

/// The text of a message's content: a string, or the text parts of an array.
std::string content_text(const json::Value& content) {
  if (content.is_string()) {
    return std::string(content.text());
  }
  std::string out;
  for (const auto& part : content.elements()) {
    out += part.text_at({"text"});
  }
  return out;
}

}  // namespace

Result<std::vector<TokenId>> encode_text(const FakeModel& model, std::string_view text,
                                         bool add_special) {
  std::vector<TokenId> ids;
  if (model.tokenizer != nullptr) {
    STATOR_CHECK(model.tokenizer->encode(
        text,
        {.add_special = add_special ? tokenizer::AddSpecial::kYes : tokenizer::AddSpecial::kNo},
        ids));
    return ids;
  }
  if (add_special) {
    ids.push_back(kIdsOnlyBos);
  }
  for (const char byte : text) {
    ids.push_back(kIdsOnlyFirstByte + static_cast<unsigned char>(byte));
  }
  return ids;
}

std::string decode_text(const FakeModel& model, std::span<const TokenId> ids) {
  if (model.tokenizer != nullptr) {
    return model.tokenizer->decode(ids, SkipSpecial::kNo);
  }
  std::string out;
  for (const TokenId id : ids) {
    out += ids_only_text(model, id);
  }
  return out;
}

std::string token_text(const FakeModel& model, TokenId id) {
  return model.tokenizer != nullptr ? model.tokenizer->token_text(id) : ids_only_text(model, id);
}

std::string token_spelling(const FakeModel& model, TokenId id) {
  return token_text(model, id);
}

Result<std::string> render_chat(const FakeModel& model, const Conversation& conversation,
                                WallTime now) {
  if (model.chat_template != nullptr) {
    chat_template::RenderInput input;
    input.messages_json = conversation.messages_json;
    input.tools_json = conversation.tools_json;
    input.add_generation_prompt = conversation.add_generation_prompt;
    input.now = now;
    return model.chat_template->render(input);
  }
  const auto messages = json::parse(conversation.messages_json);
  if (!messages || !messages->is_array()) {
    return Error(Code::kInvalidArgument, "messages must be an array of objects");
  }
  std::string prompt;
  for (const auto& message : messages->elements()) {
    if (!message.is_object()) {
      return Error(Code::kInvalidArgument, "messages must be an array of objects");
    }
    const auto* role = message.find("role");
    const auto* content = message.find("content");
    prompt += role != nullptr && role->is_string() ? std::string(role->text()) : "user";
    prompt += ": ";
    prompt += content != nullptr ? content_text(*content) : "";
    prompt += "\n";
  }
  if (!conversation.tools_json.empty()) {
    prompt += fmt::format("tools: {}\n", conversation.tools_json);
  }
  if (conversation.add_generation_prompt) {
    prompt += "assistant:";
  }
  return prompt;
}

TextStream::TextStream(const FakeModel& model, bool skip_special)
    : model_(&model), skip_special_(skip_special) {
  if (model.tokenizer != nullptr) {
    detokenizer_.emplace(*model.tokenizer, skip_special ? SkipSpecial::kYes : SkipSpecial::kNo);
  }
}

void TextStream::step(TokenId id, std::string& out) {
  if (detokenizer_) {
    detokenizer_->step(id, out);
  } else if (!skip_special_ || (id != kIdsOnlyBos && !is_eos(*model_, id))) {
    out += ids_only_text(*model_, id);
  }
}

void TextStream::finish(std::string& out) {
  if (detokenizer_) {
    detokenizer_->finish(out);
  }
}

}  // namespace stator::fake_engine
