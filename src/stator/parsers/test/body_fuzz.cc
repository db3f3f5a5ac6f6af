// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/assert.h"
#include "stator/parsers/output_parser.h"
#include "stator/parsers/test/cutting.h"

// One body machine on any bytes. STATOR_FUZZ_BODY says which: a BodyKind, or kGuided for the two
// guided formats. The first byte chooses the family, the second how it is asked for, the third how
// the text is cut. Cut and whole must give the same events, and text in which nothing of the
// family's stands must come out as it went in.

namespace stator::parsers {
namespace {

#define STATOR_FUZZ_QUOTE_AGAIN(name) #name
#define STATOR_FUZZ_QUOTE(name) STATOR_FUZZ_QUOTE_AGAIN(name)
constexpr std::string_view kBody = STATOR_FUZZ_QUOTE(STATOR_FUZZ_BODY);

constexpr std::pair<std::string_view, BodyKind> kBodies[] = {
    {"json_calls", BodyKind::kJsonCalls}, {"named_json", BodyKind::kNamedJson},
    {"tag_params", BodyKind::kTagParams}, {"whole_json", BodyKind::kWholeJson},
    {"pythonic", BodyKind::kPythonic},    {"harmony", BodyKind::kHarmony},
    {"invoke", BodyKind::kInvoke},        {"gemma4", BodyKind::kGemma4},
    {"minimax_m3", BodyKind::kMinimaxM3},
};

constexpr bool is_guided() {
  return kBody == "guided";
}

std::vector<std::shared_ptr<const FamilySpec>> families() {
  const auto all = FamilyRegistry::builtin().tools();
  const auto* row =
      std::ranges::find(kBodies, kBody, &std::pair<std::string_view, BodyKind>::first);
  STATOR_ASSERT(is_guided() || row != std::end(kBodies), "STATOR_FUZZ_BODY names a body");
  std::vector<std::shared_ptr<const FamilySpec>> chosen;
  std::ranges::copy_if(all, std::back_inserter(chosen),
                       [&](const auto& spec) { return is_guided() || spec->body == row->second; });
  return chosen;
}

ParserOptions read_options(uint8_t family, uint8_t how) {
  static const auto kFamilies = families();
  static const auto kSchemas = *ToolSchemas::parse(
      R"([{"name":"f","parameters":{"properties":{"a":{"type":"string"},"b":{"type":"integer"},)"
      R"("c":{"type":["object","null"]},"d":{"type":"array","items":{"type":"boolean"}}}}}])");
  const auto reasonings = FamilyRegistry::builtin().reasonings();
  ParserOptions options;
  options.tools_family = kFamilies[family % kFamilies.size()];
  options.reasoning_family = reasonings[family / kFamilies.size() % reasonings.size()];
  options.named_tool = "f";
  options.reasoning = static_cast<ReasoningMode>(how % 4 % 3);
  options.parallel_calls = (how & 4) == 0;
  options.schemas = (how & 8) == 0 ? nullptr : kSchemas;
  options.force_nonempty_content = (how & 16) != 0;
  options.unknown_tools = (how & 32) == 0 ? UnknownTools::kKeep : UnknownTools::kDrop;
  options.tool_mode = ToolMode::kNative;
  if (is_guided()) {
    options.tool_mode = (how & 64) == 0 ? ToolMode::kGuidedCalls : ToolMode::kGuidedArguments;
  }
  if ((how & 128) != 0) {
    options.special_markers = all_markers(options);
  }
  return options;
}

void check_nothing_lost(const ParserOptions& options, std::string_view text,
                        const EventList& events) {
  const auto markers = all_markers(options);
  const bool has_marker = std::ranges::any_of(
      markers, [&](const std::string& marker) { return text.contains(marker); });
  const bool only_text = std::ranges::all_of(events.all(), [](const Event& event) {
    return event.kind == EventKind::kText ||
           (event.kind == EventKind::kRecovered && event.recovery == Recovery::kNotACall);
  });
  // Channels: what has no header is nothing. The line break behind an opener in the prompt is
  // dropped. And one kind of reasoning is content with an opener.
  const bool adds_or_drops = options.tools_family->body == BodyKind::kHarmony ||
                             options.reasoning == ReasoningMode::kStartsInside ||
                             options.reasoning_family->has_flag("prepend_opener");
  if (has_marker || !only_text || adds_or_drops) {
    return;
  }
  std::string content;
  for (const Event& event : events.all()) {
    content += event.kind == EventKind::kText ? events.bytes(event) : "";
  }
  STATOR_ASSERT(content == text, "text without a marker comes out as it went in");
}

}  // namespace
}  // namespace stator::parsers

extern "C" int LLVMFuzzerTestOneInput(  // NOLINT(readability-identifier-naming): libFuzzer's name
    const uint8_t* data, size_t size) {
  using namespace stator::parsers;
  if (size < 3) {
    return 0;
  }
  const ParserOptions options = read_options(data[0], data[1]);
  const auto parser = OutputParser::create(options);
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const EventList whole = parse_stream(*parser, cut_evenly(text, options, text.size() + 1));
  const size_t piece_bytes = size_t{1} + data[2] % 32;
  STATOR_ASSERT(spell_events(whole) ==
                    spell_events(parse_stream(*parser, cut_evenly(text, options, piece_bytes))),
                "events do not depend on how the text is cut");
  check_nothing_lost(options, text, whole);
  return 0;
}
