// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/chat_template/detail/ast.h"

namespace stator::chat_template::detail {

/// What the syntax tree says about the content of messages, and about tools that are not there.
struct ContentUse {
  bool walks_parts = false;    ///< iterates over content, or reads members of content[i]
  bool tests_string = false;   ///< asks whether content is a string: copes with both forms
  bool tools_none = false;     ///< asks whether tools is none
  bool tools_defined = false;  ///< asks whether tools is defined
};

/// Follows `message.content` through set, for, with and macro parameters, by name: scopes are
/// ignored, which errs towards finding a use.
ContentUse find_content_use(const Program& program);

}  // namespace stator::chat_template::detail
