// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/app/dynamo.h"
#include "stator/core/result.h"

namespace stator::app {

/// What a command's own flags are, as far as reading another program's command line needs it.
struct OwnFlags {
  std::function<bool(std::string_view flag)> has;        ///< with its dashes
  std::function<bool(std::string_view flag)> is_switch;  ///< it needs no value
  bool takes_model = false;                              ///< by MODEL, without a flag
};

/// A command line of NVIDIA Dynamo's frontend, router, workers or mocker in this program's words.
struct TranslatedFlags {
  std::vector<std::string> words;
  std::vector<DynamoFinding> ignored;  ///< flags without effect here, and what to use instead
  std::string dump_config_to;          ///< file that wants the settings; empty: none
};

/// Puts Dynamo's flags among `words` into our own: names, values ("None", "agg"), `--no-` forms.
/// Flags the command has itself and words nobody knows stay as they are. kInvalidArgument for a
/// value that cannot be put into our words, such as a broken JSON object.
///
///   --http-port 8000 --router-mode kv --no-router-kv-events
///   --port 8000 --router-mode kv --router-use-kv-events=false
Result<TranslatedFlags> translate_dynamo_flags(std::span<const char* const> words,
                                               const OwnFlags& own);

/// Reads an environment variable as Dynamo's processes do: under its older names and with its
/// values put into our words. For names that are no variable of Dynamo's: read_env().
std::optional<std::string> read_dynamo_env(const std::string& name);

/// The value of one of Dynamo's variables in our words.
std::string dynamo_value(std::string_view name, const std::string& value);

/// What to use instead of a flag of Dynamo that has no effect here; nothing for others.
std::optional<std::string_view> unused_flag_advice(std::string_view flag);

/// A place of discovery in Dynamo's words ("etcd", "file", "mem", "kubernetes") in ours, with what
/// the environment says about it (ETCD_ENDPOINTS, DYN_FILE_KV, POD_NAMESPACE); others as they are.
std::string discovery_place(const std::string& backend);

}  // namespace stator::app
