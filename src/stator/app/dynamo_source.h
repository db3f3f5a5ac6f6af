// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stator::app {

/// A DYN_* variable that a file sets or names.
struct DynamoVariable {
  std::string name;
  std::optional<std::string> value;  ///< as far as the text tells
};

/// One flag of a command line of Dynamo's.
struct DynamoFlag {
  std::string module;  ///< "frontend", "vllm", "mocker"
  std::string flag;    ///< "--http-port"
  std::string value;   ///< all that stands behind it up to the next flag; empty: nothing
};

/// What a shell file, a compose file or a manifest says to Dynamo. Reads words, not YAML or shell:
/// whatever sets a variable or starts `python -m dynamo.…`, in whichever spelling, is found.
struct DynamoSource {
  std::vector<DynamoVariable> variables;  ///< by name, each once; the last value counts
  std::vector<DynamoFlag> flags;          ///< in their order
};
DynamoSource read_dynamo_source(std::string_view text);

}  // namespace stator::app
