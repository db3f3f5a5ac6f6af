// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/inference/step_output.h"

namespace stator::continuity {

/// All that another frontend needs to go on with a stream, beside the request itself, which its
/// client sends again. What the client saw is a function of the two.
struct StreamJournal {
  struct Header {
    uint64_t request_hash = 0;  ///< of path, credentials and body
    std::string request_id;
    WallTime created;
  };
  Header header;
  /// What was accepted, in the order in which it became events: one delta each, whose request is
  /// the index of the choice.
  std::vector<inference::StepOutput> steps;
};

// Parts as a JournalHub keeps them. decode of a header and of steps gives them back; it trusts
// nothing: kCorrupt with what is wrong.
std::string encode(const StreamJournal::Header& header);
std::string encode(const inference::StepOutput& step);
Result<StreamJournal> decode_journal(std::span<const std::string> parts);

}  // namespace stator::continuity
