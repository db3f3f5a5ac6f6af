// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "stator/app/settings.h"

namespace stator::app {

/// An option that is not a setting: it belongs to one command only ("--url" of chat).
struct CommandOption {
  std::string_view flag;
  std::string_view help;
  bool is_switch = false;
  bool is_repeated = false;  ///< values of all its uses arrive joined by commas
};

/// What the user typed, after parsing and loading the configuration.
struct Invocation {
  Settings settings;
  std::vector<std::string> positionals;
  std::vector<std::string> rest;  ///< what stood behind "--"
  std::map<std::string, std::string, std::less<>>
      options;  ///< by flag, as CommandOption names them
};

/// MODEL as typed; empty if it was not.
inline std::string model_of(const Invocation& invocation) {
  return invocation.positionals.empty() ? std::string() : invocation.positionals.front();
}

}  // namespace stator::app
