// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/json/value.h"

namespace stator::fake_engine {

// Reading request bodies. Fake servers are lenient where the real ones are: a member of the wrong
// type that no rule is about counts as absent.

/// Null when the member is absent or null.
const json::Value* find_member(const json::Value& object, std::string_view key);
std::optional<std::string> read_text(const json::Value& object, std::string_view key);
std::optional<int64_t> read_integer(const json::Value& object, std::string_view key);
std::optional<double> read_number(const json::Value& object, std::string_view key);
bool read_flag(const json::Value& object, std::string_view key, bool otherwise = false);
/// A string, or an array of strings.
std::vector<std::string> read_texts(const json::Value& object, std::string_view key);
/// An array of token ids; nothing when it is not one (negative or not whole).
std::optional<std::vector<TokenId>> read_ids(const json::Value& value);

/// The parsed object, or the place in `text` at which JSON stops being JSON.
struct ParsedBody {
  json::Value object;
  bool ok = false;
  size_t error_at = 0;
};
ParsedBody parse_body(std::string_view text);

/// The smallest value a JSON schema allows, as far as it says so plainly: first enum value, const,
/// required members of objects, first alternative of anyOf, "" and 0 and false and null.
std::string sample_of_schema(const json::Value& schema);
/// A text a regular expression of literals, groups, classes, alternatives and the quantifiers
/// ? * + {n} {n,m} matches; nothing for anything richer.
std::optional<std::string> sample_of_regex(std::string_view pattern);

}  // namespace stator::fake_engine
