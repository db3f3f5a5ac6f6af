// SPDX-License-Identifier: Apache-2.0
#include "stator/access/caller.h"

#include <array>

namespace stator::access {
namespace {

constexpr std::array<std::string_view, 4> kWords = {"anyone", "user", "service", "operator"};

}  // namespace

std::string_view describe(Role role) {
  return kWords[static_cast<size_t>(role)];
}

std::optional<Role> parse_role(std::string_view word) {
  for (size_t i = 1; i < kWords.size(); ++i) {
    if (kWords[i] == word) {
      return static_cast<Role>(i);
    }
  }
  return std::nullopt;
}

}  // namespace stator::access
