// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "stator/api/detail/generate_reader.h"

namespace stator::api {
namespace {

struct FormatFacts {
  std::string type;
  bool has_schema_object = false;  // the member json_schema
  std::string name;
  std::string schema;
};

void read_json_schema(FieldReader& in, const Path& path, FormatFacts& facts) {
  facts.has_schema_object = in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "name") {
      facts.name = in.string(member).value_or("");
    } else if (key == "schema") {
      facts.schema = in.raw_object(member).value_or("");
    } else if (key == "strict") {
      in.boolean(member);
    } else if (key == "description") {
      in.has_string(member);
    } else {
      in.skip();
    }
  });
}

void check_json_schema(FieldReader& in, const Path& path, const FormatFacts& facts) {
  const Path member(path, "json_schema");
  if (!facts.has_schema_object) {
    in.violation(member, "is required when response_format.type is json_schema");
    return;
  }
  if (facts.name.empty()) {
    in.violation(Path(member, "name"), "must not be empty");
  }
  if (facts.schema.empty()) {
    in.violation(Path(member, "schema"), "is required and must be an object");
  }
}

}  // namespace

std::string_view read_response_format(GenerateReader& reader, const Path& path) {
  FieldReader& in = reader.in;
  FormatFacts facts;
  reader.response_format_guided = false;
  const size_t begin = in.mark();
  const bool present = in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "type") {
      facts.type = in.string(member).value_or("");
    } else if (key == "json_schema") {
      read_json_schema(in, member, facts);
    } else {
      in.skip();
    }
  });
  if (!present) {
    return {};
  }
  using enum GuidedDecoding::Kind;
  const std::string_view text = in.since(begin);
  if (facts.type == "text") {
    return text;
  }
  if (facts.type == "json_object") {
    reader.options.guided = {kJsonObject, ""};
  } else if (facts.type == "json_schema") {
    check_json_schema(in, path, facts);
    reader.options.guided = {kJsonSchema, std::move(facts.schema)};
  } else if (facts.type == "structural_tag") {
    in.unsupported(Path(path, "type"), "structural_tag is not supported");
    return text;
  } else {
    in.violation(Path(path, "type"), "must be one of text, json_object, json_schema");
    return text;
  }
  reader.response_format_guided = true;
  require_guided_decoding(reader, path);
  return text;
}

}  // namespace stator::api
