// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"

namespace stator::router {

/// What was known of one model's workers, as ChainIndex::save wrote it. A model has one part for
/// those that answer, and one behind it for those that only compute prompts.
struct IndexSnapshot {
  std::string model;
  uint32_t block_size = 0;  ///< tokens; of another size the blocks mean nothing
  std::string content;
};

/// A file of them: "StatorKV", version, length of the rest, the models, XXH3-64 of all before.
std::string encode_snapshots(const std::vector<IndexSnapshot>& snapshots);

/// kInvalidArgument: some other file. kUnsupported: of another version. kCorrupt: cut short, or a
/// checksum that does not fit.
Result<std::vector<IndexSnapshot>> decode_snapshots(std::string_view file);

}  // namespace stator::router
