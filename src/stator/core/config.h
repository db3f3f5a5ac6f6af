// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"

namespace stator {

/// One setting: what it is called everywhere, what it means, and how to set it.
struct ConfigField {
  std::string key;        ///< "http.port": its place in YAML
  std::string flag;       ///< "--port"
  std::string env;        ///< "STATOR_HTTP_PORT"
  std::string env_peer;   ///< the variable of NVIDIA Dynamo that means the same; empty if none
  std::string flag_peer;  ///< the same for its flag, with dashes
  std::string help;
  std::string kind;   ///< "integer", "duration", …
  std::string range;  ///< "1 … 65535", "kv | random"; empty = any
  std::string default_text;
  bool is_switch = false;  ///< a bool: the flag needs no value
  std::function<Status(std::string_view)> set;
  std::function<std::string()> get;
};

/// Optional parts of a field's declaration.
struct ConfigNames {
  std::string_view flag{};  ///< without dashes; default: the key with '-' for '.' and '_'
  std::string_view env_peer{};
  std::string_view flag_peer{};  ///< without dashes
};

/// The one list of settings: modules bind the fields of their config structs to keys; flags,
/// environment, YAML and docs/configuration.md all come from it. The struct's initial value is the
/// default. The bound fields must outlive the schema.
///
///   HttpConfig http;
///   ConfigSchema schema;
///   schema.integer("http.port", http.port, 0, 65535, "port to listen on, 0 = any", {.flag =
///   "port"}); STATOR_CHECK(schema.load({.file = path, .env = read_env, .flags = flags}));
///
/// Precedence: flag > environment (STATOR_ before peer name) > file > default. Unknown keys, values
/// out of range and unparsable values are kInvalidArgument errors that name key, value and range.
class ConfigSchema {
 public:
  void text(std::string_view key, std::string& field, std::string_view help,
            ConfigNames names = {});
  /// Text that is never shown: render_yaml prints *** for a set one.
  void secret(std::string_view key, std::string& field, std::string_view help,
              ConfigNames names = {});
  void boolean(std::string_view key, bool& field, std::string_view help, ConfigNames names = {});
  void number(std::string_view key, double& field, double min, double max, std::string_view help,
              ConfigNames names = {});
  /// "250ms", "5s", "2m", "1h"; a plain number is seconds.
  void duration(std::string_view key, Duration& field, std::string_view help,
                ConfigNames names = {});
  /// "64KiB", "1GiB", "192MB"; a plain number is bytes.
  void bytes(std::string_view key, uint64_t& field, std::string_view help, ConfigNames names = {});
  void choice(std::string_view key, std::string& field, std::vector<std::string> choices,
              std::string_view help, ConfigNames names = {});
  template <typename T>
    requires std::is_integral_v<T>
  void integer(std::string_view key, T& field, std::type_identity_t<T> min,
               std::type_identity_t<T> max, std::string_view help, ConfigNames names = {}) {
    add_integer(
        key, help, names, {static_cast<int64_t>(min), static_cast<int64_t>(max)},
        [&field](int64_t value) { field = static_cast<T>(value); },
        [&field] { return static_cast<int64_t>(field); });
  }

  struct Sources {
    std::string file{};  ///< YAML path, empty = none
    std::function<std::optional<std::string>(const std::string&)> env{};
    std::map<std::string, std::string> flags{};  ///< by ConfigField::flag
  };
  Status load(const Sources& sources);
  /// The YAML part alone, from text; used by load() and the fuzzer.
  Status load_yaml(std::string_view text);

  const std::vector<ConfigField>& fields() const { return fields_; }
  const ConfigField* find_flag(std::string_view flag) const;
  /// All current values as YAML.
  std::string render_yaml() const;
  /// The table of docs/configuration.md.
  std::string render_markdown() const;

 private:
  struct IntegerRange {
    int64_t min;
    int64_t max;
  };
  void add_integer(std::string_view key, std::string_view help, ConfigNames names,
                   IntegerRange range, std::function<void(int64_t)> set,
                   std::function<int64_t()> get);
  ConfigField& add(std::string_view key, std::string_view help, std::string_view kind,
                   ConfigNames names);
  Status set(const ConfigField& field, std::string_view value, std::string_view source);
  const ConfigField* find_key(std::string_view key) const;
  std::string nearest_key(std::string_view key) const;

  std::vector<ConfigField> fields_;
};

/// "1.5s" → Duration; see ConfigSchema::duration.
Result<Duration> parse_duration(std::string_view text);
/// "64KiB" → 65536; see ConfigSchema::bytes.
Result<uint64_t> parse_bytes(std::string_view text);
/// Number of single-character edits between two words; for "did you mean".
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace stator
