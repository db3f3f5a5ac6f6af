// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/parsers/output_parser.h"

// A spec file, a line with "---", and an output that it reads. Any spec is refused or works.

extern "C" int LLVMFuzzerTestOneInput(  // NOLINT(readability-identifier-naming): libFuzzer's name
    const uint8_t* data, size_t size) {
  using namespace stator::parsers;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t cut = text.find("\n---\n");
  const auto registry = FamilyRegistry::with_specs(text.substr(0, cut));
  if (!registry) {
    return 0;
  }
  ParserOptions options;
  options.tools_family = registry->tools().back();
  options.reasoning_family = registry->reasonings().back();
  options.tool_mode = ToolMode::kNative;
  options.reasoning = ReasoningMode::kOn;
  const auto parser = OutputParser::create(options);
  auto state = parser->make_state();
  EventList events;
  parser->feed(state, cut == std::string_view::npos ? "" : text.substr(cut + 5), events);
  parser->finish(state, StreamEnd::kStop, events);
  return 0;
}
