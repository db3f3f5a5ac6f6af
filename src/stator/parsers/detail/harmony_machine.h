// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/parsers/detail/body.h"
#include "stator/parsers/detail/message_header.h"

namespace stator::parsers {

/// What a marker of a channel format is.
enum HarmonyMark : int {
  kStart,
  kChannel,
  kConstrain,
  kMessage,
  kEnd,
  kContent,
  kReasoning,
  kCalls
};

/// Where a message goes.
struct HarmonyRoute {
  enum class Kind : uint8_t { kContent, kReasoning, kCall, kDropped };
  Kind kind = Kind::kContent;
  std::string tool;  ///< of a call: whose
};

/// A channel format, compiled: its markers, and who a message with a header is for.
/// Immutable after construction; any thread may read it.
struct HarmonyMachine final : BodyMachine {
  explicit HarmonyMachine(const BodyContext& context);
  std::unique_ptr<Body> start() const override;

  /// The tool `recipient` stands for; empty if it stands for none. A part of `recipient`.
  std::string_view tool_of(std::string_view recipient, const ParserOptions& options) const;
  HarmonyRoute route(const MessageHeader& header, const ParserOptions& options) const;

  MarkerSet markers;
  std::vector<std::string> reasoning_channels;
  std::vector<std::string> reasoning_recipients;
  std::vector<std::string> text_recipients;
  std::vector<std::string> function_prefixes;
  std::vector<std::string> builtin_tools;
  std::vector<std::string> roles;
  std::vector<std::string> channels;
  std::vector<std::string> ends;  ///< the texts of the markers that end a message
  std::unique_ptr<const BodyMachine>
      calls;               ///< reads messages with calls; null: they are arguments
  bool has_kinds = false;  ///< markers say what a message is, not its header
  bool bare_headers = false;
  bool spaced = false;
};

}  // namespace stator::parsers
