// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/chat_template/chat_template.h"
#include "stator/chat_template/value.h"
#include "stator/core/clock.h"

namespace stator::chat_template::detail {

/// A conversation for a format that is code. Messages are adapted already: contents are texts,
/// reasoning is reasoning_content, arguments are objects where they can be.
struct NativeInput {
  const Value& messages;  ///< list of dicts
  const Value& tools;     ///< list of OpenAI tools, or missing
  const Value& extra;     ///< dict of chat_template_kwargs, or missing
  bool add_generation_prompt;
  WallTime now;
  Arena& arena;

  /// Member of `extra`, or null when absent or none.
  const Value* option(std::string_view name) const;
  /// The text of option(name), or `otherwise`.
  std::string_view text_option(std::string_view name, std::string_view otherwise) const;
};

/// Builds a prompt and remembers which bytes are the client's.
class PromptWriter {
 public:
  /// `meter` may be null.
  PromptWriter(size_t bytes_max, Meter* meter) : bytes_max_(bytes_max), meter_(meter) {}

  /// Text of the format itself.
  void mark(std::string_view text);
  /// Text that came with the request.
  void data(std::string_view text);
  void data_json(const Value& value);
  RenderedPrompt take() { return std::move(prompt_); }

 private:
  RenderedPrompt prompt_;
  size_t bytes_max_;
  Meter* meter_;
};

/// The text of a message member; empty when absent or none. Throws Failure for other kinds.
std::string_view message_text(const Value& message, std::string_view name);

// The formats. All throw Failure on conversations they cannot express.
void render_deepseek_v32(const NativeInput& input, PromptWriter& out);
void render_deepseek_v4(const NativeInput& input, PromptWriter& out);
void render_harmony(const NativeInput& input, PromptWriter& out);

}  // namespace stator::chat_template::detail
