// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>

#include "stator/app/terminal.h"
#include "stator/app/version.h"
#include "stator/cli/command.h"

namespace stator::cli {
namespace {

/// As roff takes it: backslashes and dashes are its own, and so is a dot that begins a line.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) {
      out += "\\&";
    }
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string section(const Command& command) {
  std::string out = fmt::format(".SS stator {} {}\n{}.\n", escaped(command.name),
                                escaped(command.positional), escaped(command.summary));
  if (!command.description.empty()) {
    out += fmt::format(".PP\n.nf\n{}\n.fi\n", escaped(command.description));
  }
  for (const CommandOption& option : command.options) {
    out += fmt::format(".TP\n.B {}{}\n{}\n", escaped(option.flag),
                       option.is_switch ? "" : " \\fIVALUE\\fR", escaped(option.help));
  }
  if (!command.setting_prefixes.empty()) {
    out += fmt::format(".PP\nSettings: {}.\n", escaped(command.setting_prefixes));
  }
  return out;
}

std::string settings_section() {
  Settings settings;
  ConfigSchema schema;
  describe(schema, settings);
  std::string out =
      ".SH SETTINGS\nA flag goes before an environment variable, that before the file of "
      "\\-\\-config, that before the default.\n";
  for (const ConfigField& field : schema.fields()) {
    out += fmt::format(".TP\n.B {}\n{} ({}, {}; default: {})\n", escaped(field.flag),
                       escaped(field.help), escaped(field.key), escaped(field.env),
                       escaped(field.default_text.empty() ? "none" : field.default_text));
  }
  return out;
}

}  // namespace

Status run_manual(Invocation&) {
  std::string out = fmt::format(
      ".TH STATOR 1 \"\" \"stator {}\" \"User Commands\"\n.SH NAME\nstator \\- LLM inference "
      "engines as one service\n.SH SYNOPSIS\n.B stator\n.I COMMAND\n[flags]\n.SH COMMANDS\n",
      escaped(app::version()));
  for (const Command& command : commands()) {
    out += section(command);
  }
  out += settings_section();
  out +=
      ".SH EXIT STATUS\n0; 1 when a command failed at its work; 2 when something must be typed or "
      "configured differently.\n";
  print(out);
  return {};
}

}  // namespace stator::cli
