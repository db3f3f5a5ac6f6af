// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/token_data.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "stator/json/cursor.h"

namespace stator::epp {
namespace {

constexpr uint32_t kDepthMax = 128;

/// Where a value stands in a text.
struct Place {
  size_t at = 0;
  size_t size = 0;
};

struct Found {
  bool is_object = false;
  std::optional<Place> extension;  ///< nvext
  bool is_extension_object = false;
};

Found look(std::string_view body) {
  Found found;
  json::Cursor cursor(body, kDepthMax);
  std::string_view key;
  std::string storage;
  cursor.enter_object();
  while (cursor.next_key(key, storage)) {
    if (key != "nvext") {
      cursor.skip();
      continue;
    }
    found.is_extension_object = cursor.peek() == json::Kind::kObject;
    std::string_view value;
    cursor.skip(value);
    found.extension = Place{static_cast<size_t>(value.data() - body.data()), value.size()};
  }
  found.is_object = cursor.finish();
  return found;
}

/// Of an object: whether it has the key, and whether it has any.
std::pair<bool, bool> has_key(std::string_view object, std::string_view wanted) {
  json::Cursor cursor(object, kDepthMax);
  std::string_view key;
  std::string storage;
  bool has = false;
  bool any = false;
  cursor.enter_object();
  while (cursor.next_key(key, storage)) {
    any = true;
    has = has || key == wanted;
    cursor.skip();
  }
  return {has, any};
}

std::string list_of(std::span<const TokenId> tokens) {
  std::string list = "\"token_data\":[";
  for (size_t i = 0; i < tokens.size(); ++i) {
    fmt::format_to(std::back_inserter(list), "{}{}", i == 0 ? "" : ",", tokens[i]);
  }
  list += ']';
  return list;
}

}  // namespace

bool add_token_data(std::string& body, std::span<const TokenId> tokens) {
  const Found found = look(body);
  if (!found.is_object) {
    return false;
  }
  if (found.extension && found.is_extension_object) {
    const Place place = *found.extension;
    const auto [has, any] =
        has_key(std::string_view(body).substr(place.at, place.size), "token_data");
    if (has) {
      return false;
    }
    body.insert(place.at + 1, list_of(tokens) + (any ? "," : ""));
    return true;
  }
  const std::string value = "{" + list_of(tokens) + "}";
  if (found.extension) {
    body.replace(found.extension->at, found.extension->size, value);
    return true;
  }
  const auto [has, any] = has_key(body, "nvext");
  body.insert(body.find('{') + 1, "\"nvext\":" + value + (any ? "," : ""));
  return true;
}

}  // namespace stator::epp
