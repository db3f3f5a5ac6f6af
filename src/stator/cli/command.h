// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/app/cluster_client.h"
#include "stator/app/invocation.h"
#include "stator/app/option_number.h"
#include "stator/app/signals.h"
#include "stator/app/terminal.h"
#include "stator/core/result.h"

namespace stator::cli {

// The words of every command.
using app::CommandOption;
using app::Invocation;
using app::model_of;
using app::option_of;
using app::print;
using app::print_error;
using app::print_status;
using app::read_number;
using app::Settings;
using app::Signals;

/// One subcommand of `stator`.
struct Command {
  std::string_view name;
  std::string_view summary;      ///< one line
  std::string_view description;  ///< what a person reads under --help, with an example
  std::string_view positional;   ///< "MODEL", empty = none
  bool positional_required = false;
  bool positional_repeated = false;   ///< any number of them
  std::string_view setting_prefixes;  ///< comma list of config sections whose flags it takes
  std::vector<CommandOption> options;
  bool takes_rest = false;  ///< words behind "--" are another program's command line
  Status (*run)(Invocation& invocation);
};

/// All commands, in the order of --help.
std::span<const Command> commands();

/// Parses, loads the configuration, runs. Returns the exit status: 0, 1 when the command failed at
/// work, 2 for anything the user must type or configure differently.
int run_command_line(int argc, const char* const* argv);

// The commands; each in a file of its own.
Status run_serve(Invocation& invocation);
Status run_frontend(Invocation& invocation);
Status run_worker(Invocation& invocation);
Status run_route_replay(Invocation& invocation);
Status run_router(Invocation& invocation);
Status run_chat(Invocation& invocation);
Status run_explain(Invocation& invocation);
Status run_doctor(Invocation& invocation);
Status run_key(Invocation& invocation);
Status run_routes(Invocation& invocation);
Status run_manual(Invocation& invocation);
Status run_top(Invocation& invocation);
Status run_memory(Invocation& invocation);
Status run_models(Invocation& invocation);
Status share_model(const Invocation& invocation, const std::string& folder);
Status fetch_model(const Invocation& invocation, const std::string& model);
Status run_parse(Invocation& invocation);
Status run_passes(Invocation& invocation);
Status run_tokenize(Invocation& invocation);
Status run_render(Invocation& invocation);
Status run_version(Invocation& invocation);
Status run_transfer_bench(Invocation& invocation);
Status run_store(Invocation& invocation);
Status run_kv(Invocation& invocation);
/// `stator kv hold`.
Status run_kv_hold(Invocation& invocation);
Status run_completion(Invocation& invocation);
Status run_config(Invocation& invocation);
Status run_index_trial(Invocation& invocation);
Status run_bench(Invocation& invocation);
Status run_index_bench(Invocation& invocation);
Status run_configure(Invocation& invocation);
Status run_planner(Invocation& invocation);
Status run_forecast(Invocation& invocation);
Status run_operator(Invocation& invocation);
Status run_epp(Invocation& invocation);
Status run_sim(Invocation& invocation);
Status run_sim_faults(Invocation& invocation);  ///< of `sim`
Status run_sim_server(Invocation& invocation);

}  // namespace stator::cli
