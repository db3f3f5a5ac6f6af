// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "stator/core/ids.h"

namespace stator::kv {

/// Two blocks with one hash: tokens of a prompt, and other tokens.
struct CollidingBlocks {
  std::vector<TokenId> victim;
  std::vector<TokenId> forged;
};

/// Those of testdata/: of 16, 16 and 32 tokens.
inline std::vector<CollidingBlocks> colliding_blocks() {
  std::ifstream file(STATOR_SOURCE_DIR "/src/stator/kv/testdata/colliding_blocks.txt");
  std::vector<std::vector<TokenId>> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) {
      continue;
    }
    std::istringstream words(line);
    std::vector<TokenId>& tokens = lines.emplace_back();
    for (TokenId token = 0; words >> token;) {
      tokens.push_back(token);
    }
  }
  std::vector<CollidingBlocks> pairs;
  for (size_t i = 0; i + 1 < lines.size(); i += 2) {
    pairs.push_back({lines[i], lines[i + 1]});
  }
  return pairs;
}

}  // namespace stator::kv
