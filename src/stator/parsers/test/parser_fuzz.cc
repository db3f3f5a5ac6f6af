// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "stator/parsers/final_message.h"
#include "stator/parsers/output_parser.h"

// Every family and mode on any bytes. The first byte chooses the family, the second the mode, the
// third how the rest is cut; whole and cut must give the same message.

namespace stator::parsers {
namespace {

FinalMessage parse(const OutputParser& parser, std::string_view text, size_t piece_bytes) {
  auto state = parser.make_state();
  EventList events;
  FinalMessage message;
  for (size_t at = 0; at < text.size(); at += piece_bytes) {
    parser.feed(state, text.substr(at, piece_bytes), events);
    message.add(events);
    events.clear();
  }
  parser.finish(state, StreamEnd::kLength, events);
  message.add(events);
  return message;
}

}  // namespace
}  // namespace stator::parsers

extern "C" int LLVMFuzzerTestOneInput(  // NOLINT(readability-identifier-naming): libFuzzer's name
    const uint8_t* data, size_t size) {
  using namespace stator::parsers;
  if (size < 3) {
    return 0;
  }
  const FamilyRegistry& registry = FamilyRegistry::builtin();
  ParserOptions options;
  options.tools_family = registry.tools()[data[0] % registry.tools().size()];
  options.reasoning_family = registry.reasonings()[data[1] / 8 % registry.reasonings().size()];
  options.tool_mode = static_cast<ToolMode>(data[1] % 4);
  options.named_tool = "f";
  options.reasoning = static_cast<ReasoningMode>(data[1] / 4 % 3);
  options.parallel_calls = (data[2] & 0x80) == 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const auto parser = OutputParser::create(options);
  const size_t piece_bytes = 1 + (data[2] & 0x1F);
  if (!(parse(*parser, text, piece_bytes) == parse(*parser, text, text.size() + 1))) {
    std::abort();
  }
  return 0;
}
