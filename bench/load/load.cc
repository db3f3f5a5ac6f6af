// SPDX-License-Identifier: Apache-2.0
// stator_load: a small load generator for OpenAI-style servers; see options.cc for its help text.
#include <iostream>
#include <span>
#include <string_view>

#include "generator.h"
#include "options.h"

namespace {

constexpr int kExitUsage = 2;

int complain(std::string_view problem) {
  std::cerr << "stator_load: " << problem << " (see --help)\n";
  return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv + 1, static_cast<size_t>(argc - 1));
  if (arguments.size() == 1 && std::string_view(arguments[0]) == "--help") {
    std::cout << stator::bench::kUsage;
    return 0;
  }
  auto options = stator::bench::parse_options(arguments);
  if (!options) {
    return complain(options.error());
  }
  const bool hold = options->hold > 0;
  const bool stop_after_first = options->stop_after_first;
  auto generator = stator::bench::Generator::create(*std::move(options));
  if (!generator) {
    return complain(generator.error());
  }
  auto report = hold ? (*generator)->run_hold() : (*generator)->run_closed_loop();
  std::cout << report.to_json() << std::flush;
  if (hold && !stop_after_first) {
    (*generator)->hold_until_input_ends();
  }
  return 0;
}
