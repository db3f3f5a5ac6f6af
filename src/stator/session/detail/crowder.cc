// SPDX-License-Identifier: Apache-2.0
#include "stator/session/detail/crowder.h"

#include <map>
#include <string_view>

namespace stator::session::detail {
namespace {

std::string_view host_of(std::string_view address) {
  return address.substr(0, address.rfind(':'));
}

std::string_view whole(std::string_view address) {
  return address;
}

struct Group {
  size_t oldest = 0;
  size_t places = 0;
};

template <typename Name>
std::optional<size_t> find_by(const std::vector<std::string>& holders, const std::string& newcomer,
                              const Name& name) {
  std::map<std::string_view, Group> groups;
  for (size_t i = 0; i < holders.size(); ++i) {
    Group& group = groups.try_emplace(name(holders[i]), Group{.oldest = i}).first->second;
    ++group.places;
  }
  Group most;
  for (const auto& [who, group] : groups) {
    most = group.places > most.places ? group : most;
  }
  const auto own = groups.find(name(newcomer));
  const size_t newcomers = own == groups.end() ? 1 : own->second.places + 1;
  return most.places > newcomers ? std::optional(most.oldest) : std::nullopt;
}

}  // namespace

std::optional<size_t> find_crowder(const std::vector<std::string>& holders,
                                   const std::string& newcomer) {
  const auto found = find_by(holders, newcomer, whole);
  return found ? found : find_by(holders, newcomer, host_of);
}

std::optional<size_t> find_idler(const std::vector<std::string>& holders,
                                 const std::string& newcomer, const std::vector<bool>& idle) {
  const std::string_view host = host_of(newcomer);
  std::optional<size_t> oldest;
  size_t places = 0;
  for (size_t i = 0; i < holders.size(); ++i) {
    if (host_of(holders[i]) == host) {
      ++places;
      oldest = oldest || !idle[i] ? oldest : std::optional(i);
    }
  }
  return places >= kCrowdPlaces ? oldest : std::nullopt;
}

}  // namespace stator::session::detail
