// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/json/value.h"

namespace stator::kube {

struct YamlLimits {
  uint32_t depth_max = 64;
  size_t values_max = 2'000'000;  ///< of all documents, aliases counted where they are used
};

/// The documents of a YAML text (JSON is YAML, too), empty ones left out. Typed by YAML 1.2's core
/// schema: plain `true`, `null` and numbers are that, everything quoted is a string, and so are
/// plain `yes`, `on` and dates. A plain number whose spelling JSON allows keeps it; other spellings
/// (0x1F, .5, +1) become the same value in JSON's. Merge keys (`<<`) are resolved.
/// kInvalidArgument names `source`, line and column; kTooLarge a limit.
Result<std::vector<json::Value>> parse_yaml(std::string_view text, std::string_view source,
                                            const YamlLimits& limits = {});

/// One document, block style, two spaces. Strings that a YAML 1.1 or 1.2 reader could take for
/// something else are quoted; strings of several lines are literal blocks where that is exact.
std::string to_yaml(const json::Value& value);
/// The documents, each behind "---".
std::string to_yaml_documents(std::span<const json::Value> documents);

}  // namespace stator::kube
