// SPDX-License-Identifier: Apache-2.0
#include "stator/app/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <utility>

#include "stator/core/credentials.h"

namespace stator::app {
namespace {

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written <= 0) {
      return;  // a closed pipe: nobody reads, nothing to tell
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

void print(std::string_view text) {
  write_all(STDOUT_FILENO, text);
}

void print_error(std::string_view text) {
  // Messages quote what was typed, and that may be a URL with a password.
  write_all(STDERR_FILENO, "stator: " + hide_credentials(text) + "\n");
}

void print_status(std::string_view text) {
  write_all(STDERR_FILENO, text);
}

bool stdout_is_terminal() {
  return ::isatty(STDOUT_FILENO) == 1;
}
bool stderr_is_terminal() {
  return ::isatty(STDERR_FILENO) == 1;
}
bool stdin_is_terminal() {
  return ::isatty(STDIN_FILENO) == 1;
}

std::optional<std::string> read_line() {
  std::string line;
  return std::getline(std::cin, line) ? std::optional(std::move(line)) : std::nullopt;
}

std::string read_input() {
  std::ostringstream text;
  text << std::cin.rdbuf();
  return std::move(text).str();
}

std::optional<std::string> read_env(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

void hide_env(const std::string& name) {
  char* const value = std::getenv(name.c_str());
  if (value == nullptr) {
    return;
  }
  const std::string kept = value;
  if (::setenv(name.c_str(), kept.c_str(), 1) == 0 && std::getenv(name.c_str()) != value) {
    std::memset(value, '*', kept.size());
  }
}

void hide_argument(const char* word, size_t begin) {
  const size_t size = std::strlen(word);
  if (begin < size) {
    // Words of a command line are the process' own and may be written to.
    std::memset(const_cast<char*>(word) + begin, '*', size - begin);
  }
}

}  // namespace stator::app
