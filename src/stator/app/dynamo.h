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
    kInvalid,  ///< means a setting, which refuses its value
    kDiffers,  ///< a setting that nobody gave has another default here
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

/// One warning that names all variables, and `flags`, without effect and what to use; nothing if
/// there is none.
void warn_of_dynamo(const ConfigSchema& schema, std::span<const DynamoFinding> flags);

}  // namespace stator::app
