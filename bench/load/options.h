// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <vector>

namespace stator::bench {

using Seconds = std::chrono::duration<double>;

/// What to send, where to and how long. Exactly one of `requests`, `seconds` and `hold` is set.
struct Options {
  std::string host = "127.0.0.1";  ///< IPv4 address
  uint16_t port = 8000;
  std::string path = "/v1/chat/completions";
  std::string source;               ///< IPv4 address to connect from; empty = any
  std::vector<std::string> bodies;  ///< JSON, sent in turn
  size_t connections = 1;           ///< closed loop: each sends its next request after an answer
  size_t requests = 0;              ///< exactly so many, then stop
  Seconds seconds{0};               ///< measure so long, after `warm_up`
  Seconds warm_up{0};
  size_t hold = 0;                ///< open so many streams, one connection each, and keep reading
  bool stop_after_first = false;  ///< with `hold`: stop when each stream has its first text
  Seconds timeout{300};           ///< give up on a run (or on the first texts of held streams)
  int watched_pid = 0;            ///< process whose CPU time is reported; 0 = none
};

/// Reads the command line, the file of bodies included. The error is text for the user.
std::expected<Options, std::string> parse_options(std::span<const char* const> arguments);

/// The text of --help.
extern const char* const kUsage;

}  // namespace stator::bench
