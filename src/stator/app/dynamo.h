// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/config.h"
#include "stator/core/result.h"

namespace stator::app {

/// What becomes of a variable of NVIDIA Dynamo.
struct DynamoFinding {
  enum class Kind : uint8_t {
    kMapped,   ///< means a setting here
    kIgnored,  ///< known, and has no effect here
    kUnknown,  ///< nobody knows it
  };
  std::string name;
  Kind kind = Kind::kUnknown;
  std::string advice;  ///< the setting, or what to use instead
};

/// Looks at DYN_* names, in their order; others are passed over.
std::vector<DynamoFinding> assess_dynamo(const ConfigSchema& schema,
                                         std::span<const std::string> names);

/// The DYN_* names of this process's environment.
std::vector<std::string> dynamo_variables();
/// Those that stand in a text: a shell file, a compose file, a manifest. Each once.
std::vector<std::string> find_dynamo_names(std::string_view text);

/// One warning that names all variables, and `flags`, without effect and what to use; nothing if
/// there is none.
void warn_of_dynamo(const ConfigSchema& schema, std::span<const DynamoFinding> flags);

/// `stator doctor --from-dynamo SOURCE`: "env" or a file. A line per variable, or JSON.
Status report_dynamo(const ConfigSchema& schema, const std::string& source, bool as_json);

}  // namespace stator::app
