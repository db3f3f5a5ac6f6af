// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

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
std::string content_text(const boost::json::value& content) {
  if (const auto* text = content.if_string()) {
    return std::string(*text);
  }
  std::string out;
  if (const auto* parts = content.if_array()) {
    for (const auto& part : *parts) {
      const auto* object = part.if_object();
      const auto* text = object == nullptr ? nullptr : object->if_contains("text");
      if (text != nullptr && text->is_string()) {
        out += text->get_string();
      }
    }
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
  boost::system::error_code failed;
  const auto messages = boost::json::parse(conversation.messages_json, failed);
  if (failed || !messages.is_array()) {
    return Error(Code::kInvalidArgument, "messages must be an array of objects");
  }
  std::string prompt;
  for (const auto& message : messages.get_array()) {
    const auto* object = message.if_object();
    if (object == nullptr) {
      return Error(Code::kInvalidArgument, "messages must be an array of objects");
    }
    const auto* role = object->if_contains("role");
    const auto* content = object->if_contains("content");
    prompt += role != nullptr && role->is_string() ? std::string(role->get_string()) : "user";
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
