// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <charconv>
#include <fstream>
#include <functional>
#include <map>
#include <string_view>

namespace stator::bench {

const char* const kUsage =
    R"(usage: stator_load --port PORT --bodies FILE (--requests N | --seconds S | --hold N)

Sends OpenAI-style requests from one thread and prints one JSON line.

  --host ADDRESS       IPv4 address of the server [127.0.0.1]
  --port PORT          its port
  --path PATH          [/v1/chat/completions]
  --source ADDRESS     IPv4 address to connect from, e.g. 127.0.0.2
  --bodies FILE        JSON bodies, one per line, sent in turn
  --connections N      closed loop of N connections [1]
  --requests N         send exactly N requests, or
  --seconds S          measure for S seconds
  --warm-up S          ... after S seconds of the same load [0], or
  --hold N             open N streams; print the line when each has its first text; keep reading
                       until standard input ends
  --stop-after-first   with --hold: stop after the line
  --timeout S          give up after S seconds [300]
  --watch-pid PID      report this process's CPU time over the measured window
)";

namespace {

template <typename T>
bool parse(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

bool parse_seconds(std::string_view text, Seconds& value) {
  double count = 0;
  if (!parse(text, count) || count < 0) {
    return false;
  }
  value = Seconds(count);
  return true;
}

bool read_bodies(std::string_view path, std::vector<std::string>& bodies) {
  std::ifstream file{std::string(path)};
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) {
      bodies.push_back(line);
    }
  }
  return !bodies.empty();
}

using Setter = std::function<bool(std::string_view)>;

std::map<std::string_view, Setter> make_setters(Options& options) {
  const auto text = [](std::string& field) {
    return [&field](std::string_view value) {
      field = value;
      return !field.empty();
    };
  };
  const auto number = [](auto& field) {
    return [&field](std::string_view value) { return parse(value, field); };
  };
  const auto seconds = [](Seconds& field) {
    return [&field](std::string_view value) { return parse_seconds(value, field); };
  };
  return {{"--host", text(options.host)},
          {"--port", number(options.port)},
          {"--path", text(options.path)},
          {"--source", text(options.source)},
          {"--bodies", [&options](auto value) { return read_bodies(value, options.bodies); }},
          {"--connections", number(options.connections)},
          {"--requests", number(options.requests)},
          {"--seconds", seconds(options.seconds)},
          {"--warm-up", seconds(options.warm_up)},
          {"--hold", number(options.hold)},
          {"--timeout", seconds(options.timeout)},
          {"--watch-pid", number(options.watched_pid)}};
}

std::string check(const Options& options) {
  const int modes = (options.requests > 0 ? 1 : 0) + (options.seconds.count() > 0 ? 1 : 0) +
                    (options.hold > 0 ? 1 : 0);
  if (modes != 1) {
    return "give exactly one of --requests, --seconds and --hold";
  }
  if (options.bodies.empty()) {
    return "--bodies FILE is missing";
  }
  if (options.connections == 0) {
    return "--connections must be at least 1";
  }
  if (options.warm_up.count() > 0 && options.seconds.count() == 0) {
    return "--warm-up goes with --seconds";
  }
  return {};
}

}  // namespace

std::expected<Options, std::string> parse_options(std::span<const char* const> arguments) {
  Options options;
  const auto setters = make_setters(options);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    if (name == "--stop-after-first") {
      options.stop_after_first = true;
      continue;
    }
    const auto setter = setters.find(name);
    if (setter == setters.end()) {
      return std::unexpected("unknown option " + std::string(name));
    }
    if (i + 1 == arguments.size()) {
      return std::unexpected(std::string(name) + " needs a value");
    }
    const std::string_view value = arguments[++i];
    if (!setter->second(value)) {
      return std::unexpected(std::string(name) + ": '" + std::string(value) + "' is not usable");
    }
  }
  if (const std::string problem = check(options); !problem.empty()) {
    return std::unexpected(problem);
  }
  return options;
}

}  // namespace stator::bench
