// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace stator::app
