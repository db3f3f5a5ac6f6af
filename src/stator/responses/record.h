// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/api/responses_encoder.h"

namespace stator::responses {

/// A response that can be asked for, or built on, later. Texts are JSON.
struct StoredResponse {
  std::string id;
  std::string owner;  ///< whose it is: others do not see it; empty: everybody's
  std::string previous_id;
  api::ResponseStatus status = api::ResponseStatus::kCompleted;
  std::string input_json;           ///< what its request brought: a string or an array of items
  std::string output_json;          ///< its items with commas between
  std::string response_json;        ///< the object
  std::vector<std::string> events;  ///< data of its events, of background ones; else none
  int64_t expires_s = 0;            ///< unix seconds

  size_t bytes() const;
};

// One line of JSON on disk.
std::string put_record(const StoredResponse& response);
std::string erase_record(std::string_view id);

/// What a record says; `op` is "put" or "erase", and empty for one that is none.
struct Record {
  std::string op;
  StoredResponse response;  ///< of erase: only its id
};
Record read_record(std::string_view text);

/// Says of a response that was under way that its process died.
void mark_interrupted(StoredResponse& response);

}  // namespace stator::responses
