// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stator/parsers/detail/coerce.h"
#include "stator/parsers/detail/json_stream.h"
#include "stator/parsers/tool_schemas.h"

// Tools, a line with "---", and a bare value: whatever the schema says, the result is JSON.

extern "C" int LLVMFuzzerTestOneInput(  // NOLINT(readability-identifier-naming): libFuzzer's name
    const uint8_t* data, size_t size) {
  using namespace stator::parsers;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t cut = text.find("\n---\n");
  const auto schemas = ToolSchemas::parse(text.substr(0, cut));
  const ValueSchema* schema = schemas ? (*schemas)->find_parameter("f", "a") : nullptr;
  std::string out;
  append_coerced(out, cut == std::string_view::npos ? text : text.substr(cut + 5), schema);
  if (!is_json(out)) {
    __builtin_trap();
  }
  return 0;
}
