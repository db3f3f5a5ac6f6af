// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stator/core/ids.h"

namespace stator::tokenizer::test {

/// What the reference library makes of one text; fields that the file leaves out are filled in.
struct Golden {
  std::string bytes;  ///< what we encode, not always UTF-8
  std::vector<TokenId> ids;
  std::vector<TokenId> special;  ///< with BOS/EOS
  std::vector<TokenId> plain;    ///< special tokens as text
  std::string decoded;
  std::string skipped;
};

/// goldens/<name>.json together with texts.json. Fails the running test if a file is broken.
std::vector<Golden> read_goldens(const std::string& name);

std::string testdata_path(const std::string& relative);

/// The whole file; nothing if it cannot be read.
std::optional<std::string> read_file(const std::string& path);

}  // namespace stator::tokenizer::test
