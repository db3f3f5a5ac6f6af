// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace stator::app {

// The only places where the binary talks to a terminal or reads its environment.

/// Writes to standard output; unbuffered, complete.
void print(std::string_view text);
/// "stator: <text>" on standard error.
void print_error(std::string_view text);
/// To standard error as it is: progress of long work, beside the results.
void print_status(std::string_view text);
bool stdout_is_terminal();
bool stderr_is_terminal();
bool stdin_is_terminal();
/// One line of standard input without its newline; nothing at its end.
std::optional<std::string> read_line();
/// All of standard input.
std::string read_input();
/// A variable of the process environment.
std::optional<std::string> read_env(const std::string& name);
/// Overwrites the variable's value where the process got it, which others read in /proc/PID/environ
/// and at the end of a core file. It stays in the environment, for us and for our children. Before
/// there are threads.
void hide_env(const std::string& name);
/// Overwrites what stands behind `begin` bytes of a word of the command line, for the same reason.
void hide_argument(const char* word, size_t begin);

}  // namespace stator::app
