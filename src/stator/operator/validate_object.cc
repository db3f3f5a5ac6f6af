// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/validate_object.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "stator/operator/label_syntax.h"

namespace stator::op {

using json::Value;

Status outcome(const FieldCheck& check, const Value& object) {
  if (check.ok()) {
    return {};
  }
  return Error(Code::kInvalidArgument,
               fmt::format("{} \"{}\" is invalid: {}", object.text_at({"kind"}),
                           object.text_at({"metadata", "name"}), check.what()));
}

void check_metadata(FieldCheck& check, const Value& object) {
  if (const Value* metadata = check.object(object, "object", "metadata")) {
    check_labels(check, *metadata, "metadata", "labels");
    check_annotation_map(check, *metadata, "metadata", "annotations");
    const auto space = check.string(*metadata, "metadata", "namespace");
    if (space && !space->empty() &&
        (!is_dns_subdomain(*space) || space->find('.') != std::string_view::npos)) {
      check.invalid("metadata.namespace", *metadata->find("namespace"),
                    "must be lower-case letters, digits and hyphens");
    }
  }
  const std::string_view name = object.text_at({"metadata", "name"});
  if (name.empty()) {
    check.required("metadata.name");
  } else if (!is_dns_subdomain(name)) {
    check.invalid("metadata.name", *object.find_at({"metadata", "name"}),
                  "must be at most 253 lower-case letters, digits, hyphens and dots");
  }
}

const Value* check_spec(FieldCheck& check, const Value& object) {
  const Value* spec = object.find("spec");
  if (spec == nullptr || spec->is_null()) {
    check.required("spec");
    return nullptr;
  }
  if (!spec->is_object()) {
    check.invalid("spec", *spec, "must be an object");
    return nullptr;
  }
  return spec;
}

bool is_duration(std::string_view text) {
  bool any = false;
  while (!text.empty()) {
    double number = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failed != std::errc() || number < 0) {
      return false;
    }
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    constexpr std::array<std::string_view, 6> kUnits = {"ms", "us", "ns", "h", "m", "s"};
    const auto unit =
        std::ranges::find_if(kUnits, [&](std::string_view each) { return text.starts_with(each); });
    if (unit == kUnits.end()) {
      return false;
    }
    text.remove_prefix(unit->size());
    any = true;
  }
  return any;
}

}  // namespace stator::op
