// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/chat_template/chat_template.h"
#include "stator/chat_template/reasoning_args.h"

// Input: messages, a zero byte, tools, a zero byte, chat_template_kwargs; all JSON. Every built-in
// format renders them. Nothing may crash, hang or leak.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::chat_template;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto take = [&rest] {
    const size_t end = rest.find('\0');
    const std::string_view part = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    return part;
  };
  RenderInput input;
  input.messages_json = take();
  input.tools_json = take();
  input.extra_json = take();
  input.limits = {.output_bytes_max = size_t{1} << 20U, .memory_bytes_max = size_t{16} << 20U};
  for (const auto format :
       {NativeFormat::kDeepseekV32, NativeFormat::kDeepseekV4, NativeFormat::kHarmony}) {
    const auto chat = ChatTemplate::compile(ChatTemplateSource{{}, {}, {}, format});
    for (const bool continues : {false, true}) {
      input.add_generation_prompt = !continues;
      input.continue_final_message = continues;
      (*chat)->render(input).ignore("any outcome but a crash is fine");
    }
  }
  normalize_reasoning_args({.thinking_json = input.tools_json,
                            .reasoning_effort = "low",
                            .kwargs_json = input.extra_json,
                            .default_mode = {}})
      .ignore("any outcome but a crash is fine");
  return 0;
}
