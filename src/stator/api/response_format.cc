// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "stator/api/generate_reader.h"
#include "stator/structured/read_request.h"

namespace stator::api {

std::string_view read_structured_field(GenerateReader& reader, std::string_view key,
                                       const Path& path) {
  const std::string_view json = reader.in.any(path).value_or("");
  // The keys are literals in the module's table, but the request's own spelling may be decoded into
  // storage that moves on: copy it.
  reader.structured_fields.emplace_back(std::string(key), json.empty() ? "null" : json);
  return json;
}

void finish_structured_output(GenerateReader& reader) {
  if (reader.structured_fields.empty()) {
    return;
  }
  std::vector<structured::SourceField> fields;
  for (const auto& [name, json] : reader.structured_fields) {
    fields.push_back({name, json});
  }
  auto output = structured::read_structured_output(fields);
  if (!output.has_value()) {
    const Rank rank = output.error().code == Code::kUnsupported ? Rank::kUnsupported : Rank::kRule;
    reader.in.violation(Path(output.error().field), output.error().text, rank);
    return;
  }
  reader.options.structured_output = std::move(*output);
  if (reader.options.structured_output) {
    require_guided_decoding(reader, Path(reader.options.structured_output->field));
  }
}

}  // namespace stator::api
