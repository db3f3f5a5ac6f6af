// SPDX-License-Identifier: Apache-2.0
// Bodies of POST /v1/messages: whatever comes in, what is accepted is a conversation that can be
// parsed again.
#include <cstddef>
#include <cstdint>
#include <string>

#include "stator/core/assert.h"
#include "stator/json/cursor.h"
#include "stator/protocols/anthropic/reader.h"

namespace {

constexpr uint32_t kDepthMax = 256;

bool is_array(std::string_view text) {
  stator::json::Cursor cursor(text, kDepthMax);
  return cursor.peek() == stator::json::Kind::kArray && cursor.skip() && cursor.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using stator::protocols::anthropic::read_messages;
  std::string body(reinterpret_cast<const char*>(data), size);
  const auto reading = read_messages(body, {.limits = {.guided_decoding = true}});
  if (reading) {
    const stator::api::ChatInput& chat = reading->request.chat;
    STATOR_ASSERT(is_array(chat.messages_json), "the messages are an array");
    STATOR_ASSERT(chat.tools_json.empty() || is_array(chat.tools_json), "the tools are an array");
    STATOR_ASSERT(chat.message_count > 0, "there is a message");
  }
  return 0;
}
