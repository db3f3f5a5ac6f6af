// SPDX-License-Identifier: Apache-2.0
#include "stator/core/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <numeric>
#include <sstream>
#include <utility>

#include "stator/core/assert.h"
#include "stator/core/credentials.h"

namespace stator {
namespace {

constexpr size_t kFileBytesMax = 4 << 20;
constexpr int kYamlDepthMax = 32;

Error bad_value(std::string_view what) {
  return {Code::kInvalidArgument, std::string(what)};
}

template <typename T>
std::optional<T> parse_whole(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::optional<bool> parse_bool(std::string_view text) {
  const std::string word = lower(text);
  if (word == "1" || word == "true" || word == "yes" || word == "on") {
    return true;
  }
  if (word == "0" || word == "false" || word == "no" || word == "off") {
    return false;
  }
  return std::nullopt;
}

std::string render_duration(Duration value) {
  const int64_t nanos = value.count();
  if (nanos % 1'000'000'000 == 0) {
    return fmt::format("{}s", nanos / 1'000'000'000);
  }
  if (nanos % 1'000'000 == 0) {
    return fmt::format("{}ms", nanos / 1'000'000);
  }
  return fmt::format("{}us", nanos / 1'000);
}

std::string render_bytes(uint64_t value) {
  static constexpr std::pair<int, const char*> kUnits[] = {{30, "GiB"}, {20, "MiB"}, {10, "KiB"}};
  for (const auto& [shift, unit] : kUnits) {
    if (value != 0 && value % (1ULL << shift) == 0) {
      return fmt::format("{}{}", value >> shift, unit);
    }
  }
  return fmt::to_string(value);
}

/// Splits "64KiB" into number and unit.
std::optional<std::pair<double, std::string>> split_unit(std::string_view text) {
  const size_t unit_at = std::min(text.find_first_not_of("0123456789.-+"), text.size());
  const auto number = parse_whole<double>(text.substr(0, unit_at));
  if (!number || !std::isfinite(*number) || *number < 0) {
    return std::nullopt;
  }
  return std::pair(*number, std::string(text.substr(unit_at)));
}

Status flatten_yaml(const YAML::Node& node, const std::string& prefix, int depth,
                    std::vector<std::pair<std::string, std::string>>& out) {
  if (depth > kYamlDepthMax) {
    return bad_value("configuration is nested too deeply at '" + prefix + "'");
  }
  if (node.IsNull()) {
    return {};
  }
  if (node.IsScalar()) {
    out.emplace_back(prefix, node.Scalar());
    return {};
  }
  if (node.IsSequence()) {
    // A list of plain values is their text with commas: what a flag would say.
    std::string list;
    for (const auto& item : node) {
      if (!item.IsScalar()) {
        return bad_value("configuration key '" + prefix +
                         "' has a list of something else than values");
      }
      list += (list.empty() ? "" : ",") + item.Scalar();
    }
    out.emplace_back(prefix, list);
    return {};
  }
  if (!node.IsMap()) {
    return bad_value("configuration key '" + prefix + "' must be a value or a map, not a list");
  }
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) {
      return bad_value("configuration has a key that is not a plain word under '" + prefix + "'");
    }
    const std::string key =
        prefix.empty() ? entry.first.Scalar() : prefix + "." + entry.first.Scalar();
    STATOR_CHECK(flatten_yaml(entry.second, key, depth + 1, out));
  }
  return {};
}

}  // namespace

Result<Duration> parse_duration(std::string_view text) {
  const auto parts = split_unit(text);
  static const std::map<std::string, double, std::less<>> kSeconds = {
      {"", 1},   {"s", 1},    {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9},
      {"m", 60}, {"min", 60}, {"h", 3600},  {"d", 86400}};
  const auto unit = parts ? kSeconds.find(parts->second) : kSeconds.end();
  if (unit == kSeconds.end() || parts->first * unit->second > 1e9) {
    return bad_value(fmt::format("'{}' is not a duration: write 250ms, 5s, 2m or 1h", text));
  }
  return Duration(std::llround(parts->first * unit->second * 1e9));
}

Result<uint64_t> parse_bytes(std::string_view text) {
  const auto parts = split_unit(text);
  static const std::map<std::string, double, std::less<>> kFactor = {
      {"", 1},         {"b", 1},    {"kib", 1024.0}, {"mib", 1048576.0}, {"gib", 0x1p30},
      {"tib", 0x1p40}, {"k", 1e3},  {"kb", 1e3},     {"m", 1e6},         {"mb", 1e6},
      {"g", 1e9},      {"gb", 1e9}, {"tb", 1e12}};
  const auto unit = parts ? kFactor.find(lower(parts->second)) : kFactor.end();
  if (unit == kFactor.end() || parts->first * unit->second > 0x1p62) {
    return bad_value(fmt::format("'{}' is not a size: write 65536, 64KiB, 192MiB or 1GiB", text));
  }
  return static_cast<uint64_t>(std::llround(parts->first * unit->second));
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

ConfigField& ConfigSchema::add(std::string_view key, std::string_view help, std::string_view kind,
                               ConfigNames names) {
  STATOR_ASSERT(find_key(key) == nullptr, "a configuration key is declared once");
  ConfigField field;
  field.key = key;
  field.flag = "--" + std::string(names.flag.empty() ? key : names.flag);
  std::ranges::replace(field.flag, '.', '-');
  std::ranges::replace(field.flag, '_', '-');
  field.env = "STATOR_";
  for (const char c : key) {
    field.env += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  field.env_peer = names.env_peer;
  field.flag_peer = names.flag_peer.empty() ? "" : "--" + std::string(names.flag_peer);
  field.help = help;
  field.kind = kind;
  STATOR_ASSERT(find_flag(field.flag) == nullptr, "a flag is declared once");
  return fields_.emplace_back(std::move(field));
}

void ConfigSchema::text(std::string_view key, std::string& field, std::string_view help,
                        ConfigNames names) {
  ConfigField& added = add(key, help, "text", names);
  added.default_text = field;
  added.set = [&field](std::string_view value) -> Status {
    field = value;
    return {};
  };
  added.get = [&field] { return hide_credentials(field); };
}

void ConfigSchema::secret(std::string_view key, std::string& field, std::string_view help,
                          ConfigNames names) {
  ConfigField& added = add(key, help, "secret", names);
  added.set = [&field](std::string_view value) -> Status {
    field = value;
    return {};
  };
  added.get = [&field] { return std::string(field.empty() ? "" : "***"); };
}

void ConfigSchema::boolean(std::string_view key, bool& field, std::string_view help,
                           ConfigNames names) {
  ConfigField& added = add(key, help, "bool", names);
  added.default_text = field ? "true" : "false";
  added.range = "true | false";
  added.is_switch = true;
  added.set = [&field](std::string_view value) -> Status {
    const auto parsed = parse_bool(value);
    if (!parsed) {
      return bad_value(fmt::format("'{}' is neither true nor false", value));
    }
    field = *parsed;
    return {};
  };
  added.get = [&field] { return std::string(field ? "true" : "false"); };
}

void ConfigSchema::number(std::string_view key, double& field, double min, double max,
                          std::string_view help, ConfigNames names) {
  ConfigField& added = add(key, help, "number", names);
  added.default_text = fmt::to_string(field);
  added.range = fmt::format("{} … {}", min, max);
  added.set = [&field, min, max](std::string_view value) -> Status {
    const auto parsed = parse_whole<double>(value);
    if (!parsed || !(*parsed >= min && *parsed <= max)) {
      return bad_value(fmt::format("'{}' is not a number in {} … {}", value, min, max));
    }
    field = *parsed;
    return {};
  };
  added.get = [&field] { return fmt::to_string(field); };
}

void ConfigSchema::duration(std::string_view key, Duration& field, std::string_view help,
                            ConfigNames names) {
  ConfigField& added = add(key, help, "duration", names);
  added.default_text = render_duration(field);
  added.set = [&field](std::string_view value) -> Status {
    STATOR_TRY(field, parse_duration(value));
    return {};
  };
  added.get = [&field] { return render_duration(field); };
}

void ConfigSchema::bytes(std::string_view key, uint64_t& field, std::string_view help,
                         ConfigNames names) {
  ConfigField& added = add(key, help, "bytes", names);
  added.default_text = render_bytes(field);
  added.set = [&field](std::string_view value) -> Status {
    STATOR_TRY(field, parse_bytes(value));
    return {};
  };
  added.get = [&field] { return render_bytes(field); };
}

void ConfigSchema::choice(std::string_view key, std::string& field,
                          std::vector<std::string> choices, std::string_view help,
                          ConfigNames names) {
  ConfigField& added = add(key, help, "choice", names);
  added.default_text = field;
  added.range = fmt::format("{}", fmt::join(choices, " | "));
  added.set = [&field, choices = std::move(choices)](std::string_view value) -> Status {
    // Dynamo writes dashes where we write underscores.
    std::string name(value);
    if (std::ranges::find(choices, name) == choices.end()) {
      std::ranges::replace(name, '-', '_');
    }
    if (std::ranges::find(choices, name) == choices.end()) {
      return bad_value(fmt::format("'{}' is not one of {}", value, fmt::join(choices, ", ")));
    }
    field = std::move(name);
    return {};
  };
  added.get = [&field] { return field; };
}

void ConfigSchema::add_integer(std::string_view key, std::string_view help, ConfigNames names,
                               IntegerRange range, std::function<void(int64_t)> set,
                               std::function<int64_t()> get) {
  ConfigField& added = add(key, help, "integer", names);
  added.default_text = fmt::to_string(get());
  added.range = fmt::format("{} … {}", range.min, range.max);
  added.set = [range, set = std::move(set)](std::string_view value) -> Status {
    const auto parsed = parse_whole<int64_t>(value);
    if (!parsed || *parsed < range.min || *parsed > range.max) {
      return bad_value(
          fmt::format("'{}' is not an integer in {} … {}", value, range.min, range.max));
    }
    set(*parsed);
    return {};
  };
  added.get = [get = std::move(get)] { return fmt::to_string(get()); };
}

const ConfigField* ConfigSchema::find_key(std::string_view key) const {
  const auto it = std::ranges::find(fields_, key, &ConfigField::key);
  return it == fields_.end() ? nullptr : &*it;
}

const ConfigField* ConfigSchema::find_flag(std::string_view flag) const {
  const auto it = std::ranges::find(fields_, flag, &ConfigField::flag);
  return it == fields_.end() ? nullptr : &*it;
}

std::string ConfigSchema::nearest_key(std::string_view key) const {
  std::string best;
  size_t best_distance = std::max<size_t>(3, key.size() / 2);
  for (const ConfigField& field : fields_) {
    const size_t distance = edit_distance(key, field.key);
    if (distance < best_distance) {
      best_distance = distance;
      best = field.key;
    }
  }
  return best;
}

Status ConfigSchema::set(const ConfigField& field, std::string_view value,
                         std::string_view source) {
  STATOR_CHECK(field.set(value), fmt::format("{} ({})", field.key, source));
  return {};
}

Status ConfigSchema::load_yaml(std::string_view text) {
  if (text.size() > kFileBytesMax) {
    return bad_value(fmt::format("configuration is larger than {}", render_bytes(kFileBytesMax)));
  }
  std::vector<std::pair<std::string, std::string>> values;
  try {
    STATOR_CHECK(flatten_yaml(YAML::Load(std::string(text)), "", 0, values));
  } catch (const YAML::Exception& error) {
    return bad_value(fmt::format("configuration is not valid YAML: {}", error.what()));
  }
  for (const auto& [key, value] : values) {
    const ConfigField* field = find_key(key);
    if (field == nullptr) {
      const std::string nearest = nearest_key(key);
      return bad_value(fmt::format("unknown configuration key '{}'{}", key,
                                   nearest.empty() ? "" : ", did you mean '" + nearest + "'?"));
    }
    STATOR_CHECK(set(*field, value, "configuration file"));
  }
  return {};
}

Status ConfigSchema::load(const Sources& sources) {
  if (!sources.file.empty()) {
    std::ifstream file(sources.file, std::ios::binary);
    if (!file) {
      return Error(Code::kInvalidArgument,
                   "cannot read the configuration file '" + sources.file + "' (--config)");
    }
    std::stringstream text;
    text << file.rdbuf();
    STATOR_CHECK(load_yaml(text.view()), sources.file);
  }
  for (const ConfigField& field : fields_) {
    if (!sources.env) {
      break;
    }
    if (const auto value = sources.env(field.env)) {
      STATOR_CHECK(set(field, *value, "environment variable " + field.env));
    } else if (!field.env_peer.empty()) {
      if (auto peer_value = sources.env(field.env_peer)) {
        if (field.kind == "bytes" && field.env_peer.ends_with("_MB")) {
          *peer_value += "MiB";  // the peer's variable has its unit in its name
        } else if (field.kind == "duration" && field.env_peer.ends_with("_MS")) {
          *peer_value += "ms";
        }
        STATOR_CHECK(set(field, *peer_value, "environment variable " + field.env_peer));
      }
    }
  }
  for (const auto& [flag, value] : sources.flags) {
    const ConfigField* field = find_flag(flag);
    if (field == nullptr) {
      return bad_value("unknown flag '" + flag + "'");
    }
    STATOR_CHECK(set(*field, value, "flag " + flag));
  }
  return {};
}

std::string ConfigSchema::render_yaml() const {
  YAML::Emitter out;
  out << YAML::BeginMap;
  std::string section;
  for (const ConfigField& field : fields_) {
    const size_t dot = field.key.find('.');
    const std::string next = dot == std::string::npos ? "" : field.key.substr(0, dot);
    if (next != section) {
      if (!section.empty()) {
        out << YAML::EndMap;
      }
      if (!next.empty()) {
        out << YAML::Key << next << YAML::Value << YAML::BeginMap;
      }
      section = next;
    }
    out << YAML::Key << (dot == std::string::npos ? field.key : field.key.substr(dot + 1))
        << YAML::Value << field.get();
  }
  if (!section.empty()) {
    out << YAML::EndMap;
  }
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

std::string ConfigSchema::render_markdown() const {
  std::string out =
      "| Key | Flag | Environment | Default | Values | Meaning |\n|---|---|---|---|---|---|\n";
  for (const ConfigField& field : fields_) {
    std::string range = field.range.empty() ? field.kind : field.range;
    for (size_t at = 0; (at = range.find('|', at)) != std::string::npos; at += 2) {
      range.insert(at, "\\");
    }
    const std::string peer = field.env_peer.empty() ? "" : " (`" + field.env_peer + "`)";
    const std::string shown = field.default_text.empty() ? "" : "`" + field.default_text + "`";
    fmt::format_to(std::back_inserter(out), "| `{}` | `{}` | `{}`{} | {} | {} | {} |\n", field.key,
                   field.flag, field.env, peer, shown, range, field.help);
  }
  return out;
}

}  // namespace stator
