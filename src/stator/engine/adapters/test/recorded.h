// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/engine/adapters/raise.h"
#include "stator/inference/request.h"

namespace stator::engine::adapters {

/// A recorded HTTP answer: "vllm-0.32/completions-stream…" of testdata.
struct Recorded {
  int status = 0;
  std::string content_type;
  std::string body;  ///< without chunk framing
};
Recorded load_recorded(const std::string& name);
std::string load_testdata(const std::string& name);

/// Everything that comes of an answer.
struct Replayed {
  Raised all;
  std::vector<size_t> tokens_per_feed;  ///< of feeds that brought any
  Status status;
};
/// Feeds `answer` to `raiser` in pieces of `piece_bytes`.
Replayed replay(std::unique_ptr<EventRaiser> raiser, const Recorded& answer,
                size_t piece_bytes = 1 << 20);

/// A greedy request for `max_tokens` tokens after a short prompt.
inference::EngineRequest make_request(uint32_t max_tokens = 8);

}  // namespace stator::engine::adapters
