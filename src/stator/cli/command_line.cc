// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <span>
#include <utility>

#include "stator/app/dynamo.h"
#include "stator/app/dynamo_flags.h"
#include "stator/app/terminal.h"
#include "stator/app/version.h"
#include "stator/cli/command.h"
#include "stator/core/log.h"
#include "stator/io/replace_file.h"

namespace stator::cli {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

bool takes_setting(const Command& command, const ConfigField& field) {
  std::string_view rest = command.setting_prefixes;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view prefix = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    if (field.key == prefix || field.key.starts_with(std::string(prefix) + ".")) {
      return true;
    }
  }
  return false;
}

/// Values as typed; optional because "not typed" must not override the environment.
struct Typed {
  std::vector<std::string> rest;
  std::map<std::string, std::string> settings;
  std::map<std::string, std::string> options;
  std::map<std::string, bool> switches;
  std::vector<std::string> positionals;
  std::string config_file;
  std::vector<std::string> translated;      ///< the words behind the command, in ours
  std::vector<app::DynamoFinding> ignored;  ///< flags of Dynamo
  std::string dump_config_to;
};

/// What a setting means, what may be chosen, and the default.
std::string help_of(const ConfigField& field) {
  std::string help = field.help;
  if (field.kind == "choice") {
    help += fmt::format(" ({})", field.range);
  }
  if (!field.default_text.empty()) {
    help += fmt::format(" [{}]", field.default_text);
  }
  return help;
}

/// What its value is called.
std::string_view value_of(const ConfigField& field) {
  static const std::map<std::string_view, std::string_view> kNames = {
      {"bool", "[true|false]"}, {"number", "NUMBER"}, {"integer", "INTEGER"},
      {"duration", "DURATION"}, {"bytes", "SIZE"},    {"choice", "NAME"}};
  const auto known = kNames.find(field.kind);
  return known == kNames.end() ? "TEXT" : known->second;
}

/// Of those that mean the same everywhere; others stand in their command's description.
std::string help_of_positional(std::string_view positional) {
  if (positional == "MODEL") {
    return "the model: its folder (config.json, tokenizer and weights), a .gguf file, or ORG/NAME "
           "in the Hugging Face cache or hub; with --url its tokenizer is enough, and without it "
           "the one the engine loaded is taken";
  }
  return "";
}

void add_flags(CLI::App& app, const Command& command, const ConfigSchema& schema, Typed& typed) {
  if (!command.positional.empty()) {
    auto* option = app.add_option(std::string(command.positional), typed.positionals,
                                  help_of_positional(command.positional));
    constexpr int kAny = 1 << 20;
    option->expected(command.positional_required ? 1 : 0, command.positional_repeated ? kAny : 1);
    option->option_text(command.positional_required ? "(required)" : "(optional)");
    if (command.positional_required) {
      option->required();
    }
  }
  for (const CommandOption& extra : command.options) {
    const std::string flag(extra.flag);
    if (extra.is_switch) {
      app.add_flag(flag, typed.switches[flag], std::string(extra.help));
    } else {
      auto* option =
          app.add_option(flag, typed.options[flag], std::string(extra.help))->option_text("VALUE");
      if (extra.is_repeated) {
        option->join(',');
      }
    }
  }
  if (!command.setting_prefixes.empty()) {
    app.add_option("--config", typed.config_file, "YAML file with settings")->option_text("FILE");
  }
  for (const ConfigField& field : schema.fields()) {
    if (!takes_setting(command, field)) {
      continue;
    }
    const std::string names =
        field.flag_peer.empty() ? field.flag : field.flag + "," + field.flag_peer;
    auto* option = app.add_option(names, typed.settings[field.flag], help_of(field))
                       ->group(field.key.substr(0, field.key.find('.')))
                       ->option_text(std::string(value_of(field)));
    if (field.is_switch) {
      option->expected(0, 1)->default_str("true");
    }
  }
}

Result<Invocation> load(const Command& command, const CLI::App& app, Typed& typed) {
  Invocation invocation;
  invocation.positionals = std::move(typed.positionals);
  invocation.rest = std::move(typed.rest);
  for (const auto& [flag, on] : typed.switches) {
    if (on) {
      invocation.options[flag] = "true";
    }
  }
  if (const auto home = app::read_env("HF_HOME")) {
    invocation.settings.hub.cache_dir = *home + "/hub";
  } else if (const auto user_home = app::read_env("HOME")) {
    invocation.settings.hub.cache_dir = *user_home + "/.cache/huggingface/hub";
  }
  ConfigSchema schema;
  describe(schema, invocation.settings);
  ConfigSchema::Sources sources;
  sources.env = app::read_dynamo_env;
  sources.file =
      typed.config_file.empty() ? app::read_env("STATOR_CONFIG").value_or("") : typed.config_file;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) {
      continue;
    }
    const std::string flag = option->get_name();
    if (const auto own = typed.options.find(flag); own != typed.options.end()) {
      invocation.options[flag] = own->second;
    }
    if (const auto setting = typed.settings.find(flag); setting != typed.settings.end()) {
      const bool bare_switch = option->results().empty() || option->results().front().empty();
      sources.flags[flag] = bare_switch ? "true" : setting->second;
    }
  }
  // Another program's words may have values that no setting takes: that is what is asked.
  if (!command.setting_prefixes.empty() && !invocation.options.contains("--from-dynamo")) {
    STATOR_CHECK(schema.load(sources));
    STATOR_CHECK(app::settle(invocation.settings));
    if (!typed.dump_config_to.empty()) {
      STATOR_CHECK(io::replace_file(typed.dump_config_to, schema.render_yaml()));
    }
  }
  return invocation;
}

using Words = std::span<const char* const>;

/// The first word that names a command, and what comes after it.
std::pair<const Command*, Words> find_command(Words words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const auto found = std::ranges::find(commands(), std::string_view(words[i]), &Command::name);
    if (found != commands().end()) {
      return {&*found, words.subspan(i + 1)};
    }
  }
  return {nullptr, {}};
}

/// The first of the words that is a flag which the command does not have, with the nearest one it
/// has. CLI11 would report it as a surplus positional, which names the wrong thing.
std::optional<std::string> find_unknown_flag(const CLI::App& command, Words words) {
  for (const std::string_view word : words) {
    const std::string flag(word.substr(0, word.find('=')));
    if (!word.starts_with("--") || command.get_option_no_throw(flag) != nullptr) {
      continue;
    }
    std::string nearest;
    size_t distance = flag.size() / 2;
    for (const CLI::Option* option : command.get_options()) {
      const std::string name = option->get_name();
      if (edit_distance(flag, name) < distance) {
        distance = edit_distance(flag, name);
        nearest = name;
      }
    }
    return fmt::format("unknown flag '{}'{} (see `stator {} --help`)", flag,
                       nearest.empty() ? "" : ", did you mean '" + nearest + "'?",
                       command.get_name());
  }
  return std::nullopt;
}

/// Read by this program or its tests, and no setting; or what Kubernetes tells of a service of that
/// name.
bool is_variable_of_ours(std::string_view name) {
  for (const std::string_view part : {"_SERVICE_HOST", "_SERVICE_PORT", "_TCP", "_UDP"}) {
    if (name.find(part) != std::string_view::npos) {
      return true;
    }
  }
  return name == "STATOR_CONFIG" || name == "STATOR_BINARY" || name.starts_with("STATOR_TEST_");
}

/// ", did you mean 'serve'?", or nothing.
std::string nearest_command(std::string_view typed) {
  std::string_view nearest;
  size_t distance = std::max<size_t>(2, typed.size() / 2);
  for (const Command& command : commands()) {
    if (const size_t d = edit_distance(typed, command.name); d < distance) {
      distance = d;
      nearest = command.name;
    }
  }
  return nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest);
}

/// A variable that looks like a setting and is none has no effect: most often a typing error.
void warn_of_unknown_variables(const std::vector<app::DynamoFinding>& ignored_flags) {
  Settings defaults;
  ConfigSchema schema;
  describe(schema, defaults);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const auto known = [&](const ConfigField& field) { return field.env == name; };
    if (!name.starts_with("STATOR_") || is_variable_of_ours(name) ||
        std::ranges::any_of(schema.fields(), known)) {
      continue;
    }
    std::string_view nearest;
    size_t distance = name.size() / 3;
    for (const ConfigField& field : schema.fields()) {
      if (const size_t d = edit_distance(name, field.env); d < distance) {
        distance = d;
        nearest = field.env;
      }
    }
    log::warn("config", "an environment variable has no effect: no setting has this name",
              {{"variable", name}, {"did_you_mean", nearest}});
  }
  app::warn_of_dynamo(schema, ignored_flags);
}

/// What is read of the environment and the command line is not to be found there by others.
void hide_secrets(Words words) {
  Settings defaults;
  ConfigSchema schema;
  describe(schema, defaults);
  for (const ConfigField& field : schema.fields()) {
    if (field.kind != "secret") {
      continue;
    }
    app::hide_env(field.env);
    app::hide_env(field.env_peer);
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string_view word = words[i];
      if (word.starts_with(field.flag) && word.substr(field.flag.size()).starts_with('=')) {
        app::hide_argument(words[i], field.flag.size() + 1);
      } else if (word == field.flag && i + 1 < words.size()) {
        app::hide_argument(words[i + 1], 0);
      }
    }
  }
  for (const char* const name : {"AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"}) {
    app::hide_env(name);
  }
}

/// Puts what stands behind the command's name into our words: it may be Dynamo's command line.
Result<std::vector<std::string>> translate(const Command& command, const CLI::App& app, Words words,
                                           Typed& typed) {
  if (command.setting_prefixes.empty()) {
    return std::vector<std::string>(words.begin(), words.end());
  }
  const auto option = [&app](std::string_view flag) {
    return app.get_option_no_throw(std::string(flag));
  };
  STATOR_TRY(auto translated,
             app::translate_dynamo_flags(
                 words, {.has = [&](std::string_view flag) { return option(flag) != nullptr; },
                         .is_switch =
                             [&](std::string_view flag) {
                               const CLI::Option* known = option(flag);
                               return known != nullptr && known->get_expected_min() == 0;
                             },
                         .takes_model = command.positional == "MODEL"}));
  typed.ignored = std::move(translated.ignored);
  typed.dump_config_to = std::move(translated.dump_config_to);
  return std::move(translated.words);
}

/// Puts the words behind the command, which end `all`, into our own. kInvalidArgument for a flag
/// that nobody knows.
Status take_words(const Command& command, const CLI::App& app, Words words, Typed& typed,
                  std::vector<const char*>& all) {
  STATOR_TRY(typed.translated, translate(command, app, words, typed));
  all.resize(all.size() - words.size());
  for (const std::string& word : typed.translated) {
    all.push_back(word.c_str());
  }
  if (const auto unknown = find_unknown_flag(app, Words(all).last(typed.translated.size()))) {
    return Error(Code::kInvalidArgument, *unknown);
  }
  return {};
}

int run_command(const Command& command, const CLI::App& app, Typed& typed, Words words) {
  auto invocation = load(command, app, typed);
  if (!invocation) {
    print_error(invocation.error().message());
    return kExitUsage;
  }
  if (!command.setting_prefixes.empty()) {
    hide_secrets(words);
  }
  const Settings& settings = invocation->settings;
  const auto format = settings.log_format == "json" ? log::Format::kJson : log::Format::kHuman;
  if (!log::configure(format, settings.log_filter)) {
    print_error(
        fmt::format("log.filter: '{}' is not level[,target=level]*, levels are trace, debug, "
                    "info, warn, error, off",
                    settings.log_filter));
    return kExitUsage;
  }
  if (!command.setting_prefixes.empty() && !invocation->options.contains("--from-dynamo")) {
    warn_of_unknown_variables(typed.ignored);
  }
  const Status status = command.run(*invocation);
  if (status) {
    return 0;
  }
  print_error(status.error().message());
  switch (status.error().code()) {
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kAlreadyExists:
    case Code::kCorrupt:
    case Code::kUnsupported:
    case Code::kTooLarge:
      return kExitUsage;  // something to type, configure or provide differently
    default:
      return kExitFailed;
  }
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  CLI::App app(
      "Stator turns a fleet of LLM inference engines into one fast, fault-tolerant service.",
      "stator");
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("stator {}", app::version()), "Print the version");
  app.get_formatter()->column_width(36);
  app.footer("Run `stator COMMAND --help` for the flags of a command.");

  // What stands behind "--" belongs to another program.
  const int own_argc =
      static_cast<int>(std::find(argv, argv + argc, std::string_view("--")) - argv);
  const auto [command, words] = find_command(Words(argv, own_argc).subspan(own_argc > 0 ? 1 : 0));
  if (own_argc > 1 && argv[1][0] != '-' && (command == nullptr || command->name != argv[1])) {
    print_error(fmt::format("unknown command '{}'{} (see `stator --help`)", argv[1],
                            nearest_command(argv[1])));
    return kExitUsage;
  }
  Typed typed;
  const CLI::App* chosen = nullptr;
  for (const Command& each : commands()) {
    CLI::App* sub = app.add_subcommand(std::string(each.name), std::string(each.summary));
    if (&each == command) {  // only its flags: checking hundreds of names takes milliseconds
      sub->footer(std::string(each.description));
      Settings defaults;
      ConfigSchema schema;
      describe(schema, defaults);
      add_flags(*sub, each, schema, typed);
      chosen = sub;
    }
  }
  std::vector<const char*> own_words(argv, argv + own_argc);
  if (chosen != nullptr) {
    const Status understood = take_words(*command, *chosen, words, typed, own_words);
    if (!understood) {
      print_error(understood.error().message());
      return kExitUsage;
    }
  }
  try {
    app.parse(static_cast<int>(own_words.size()), own_words.data());
  } catch (const CLI::CallForHelp&) {
    print(chosen == nullptr || app.get_subcommands().empty() ? app.help()
                                                             : chosen->help(app.get_name()));
    return 0;
  } catch (const CLI::CallForVersion& version) {
    print(fmt::format("{}\n", version.what()));
    return 0;
  } catch (const CLI::ParseError& error) {
    print_error(fmt::format("{} (see `stator --help`)", error.what()));
    return kExitUsage;
  }
  if (own_argc < argc) {
    if (!command->takes_rest) {
      print_error(fmt::format("`stator {}` takes no program behind --", command->name));
      return kExitUsage;
    }
    typed.rest.assign(argv + own_argc + 1, argv + argc);
  }
  return run_command(*command, *chosen, typed, words);
}

}  // namespace stator::cli
