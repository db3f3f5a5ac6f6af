// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stator/chat_template/chat_template.h"

// Input: a template, a zero byte, a JSON object of variables. Nothing may crash, hang or leak.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::chat_template;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = input.find('\0');
  const auto chat = ChatTemplate::compile(std::string(input.substr(0, split)), {});
  if (!chat) {
    return 0;
  }
  const std::string_view context =
      split == std::string_view::npos ? std::string_view("{}") : input.substr(split + 1);
  RenderInput render;
  render.limits = {.steps_max = 20'000,
                   .output_bytes_max = size_t{1} << 20U,
                   .memory_bytes_max = size_t{16} << 20U,
                   .depth_max = 200};
  (*chat)->render_context(context, render).ignore("any outcome but a crash is fine");
  return 0;
}
