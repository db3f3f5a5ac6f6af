// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "stator/chat_template/chat_template.h"
#include "stator/core/clock.h"

// The native side of bench/text/render_race.py:
//
//   stator_render_loop TEMPLATE MESSAGES_JSON TOOLS_JSON EXTRA_JSON OUT
//
// Compiles TEMPLATE, writes the prompt to OUT and prints "ready". Then reads one iteration count
// per line from standard input and answers each with the nanoseconds that so many renders took.
// A render starts from the JSON text of a request, as in the frontend.
namespace stator::chat_template {
namespace {

std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int fail(const Error& error) {
  std::cerr << error.to_string() << '\n';
  return 1;
}

int run(const char* const* paths) {
  const auto compiled = ChatTemplate::compile(
      ChatTemplateSource{read_file(paths[0]), {}, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}});
  if (!compiled) {
    return fail(compiled.error());
  }
  const std::string messages = read_file(paths[1]);
  const std::string tools = read_file(paths[2]);
  const std::string extra = read_file(paths[3]);
  const SystemClock clock;
  RenderInput input;
  input.messages_json = messages;
  input.tools_json = tools;
  input.extra_json = extra;
  input.now = clock.wall_now();
  const auto prompt = (*compiled)->render(input);
  if (!prompt) {
    return fail(prompt.error());
  }
  std::ofstream(paths[4], std::ios::binary) << *prompt;
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    int count = 0;
    std::from_chars(line.data(), line.data() + line.size(), count);
    size_t bytes = 0;
    const TimePoint start = clock.now();
    for (int i = 0; i < count; ++i) {
      bytes += (*compiled)->render(input)->size();
    }
    const Duration elapsed = clock.now() - start;
    if (bytes != prompt->size() * static_cast<size_t>(count)) {
      std::cerr << "renders of different length\n";
      return 1;
    }
    std::cout << elapsed.count() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace stator::chat_template

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: stator_render_loop TEMPLATE MESSAGES_JSON TOOLS_JSON EXTRA_JSON OUT\n";
    return 2;
  }
  return stator::chat_template::run(argv + 1);
}
