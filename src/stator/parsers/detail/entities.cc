// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/entities.h"

#include <array>
#include <string_view>

namespace stator::parsers {
namespace {

struct Entity {
  std::string_view text;
  char stands_for;
};
constexpr std::array<Entity, 5> kEntities = {{{.text = "&lt;", .stands_for = '<'},
                                              {.text = "&gt;", .stands_for = '>'},
                                              {.text = "&amp;", .stands_for = '&'},
                                              {.text = "&quot;", .stands_for = '"'},
                                              {.text = "&apos;", .stands_for = '\''}}};

}  // namespace

void unescape_entities(std::string& text) {
  size_t to = text.find('&');
  for (size_t from = to; from < text.size(); ++to) {
    const std::string_view rest = std::string_view(text).substr(from);
    const Entity* found = nullptr;
    for (const Entity& entity : kEntities) {
      found = rest.starts_with(entity.text) ? &entity : found;
    }
    text[to] = found == nullptr ? rest[0] : found->stands_for;
    from += found == nullptr ? 1 : found->text.size();
  }
  text.resize(std::min(to, text.size()));
}

}  // namespace stator::parsers
