// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "stator/core/result.h"
#include "stator/engine/adapters/dialect.h"
#include "stator/inference/handoff.h"

namespace stator::engine::adapters {

// Prompts that one engine server computes and another goes on from: what servers say about it, and
// their own words for it, which are carried verbatim.

/// What the operator says about a server's part.
struct HandoffWish {
  std::string role = "auto";     ///< "auto": the server's own word, else aggregated
  std::string carrier = "nixl";  ///< vLLM: "nixl", or "shared" for storage that both servers see
};

/// What a server of `kind` at `host` can give or take. kInvalidArgument where the wish contradicts
/// what the server says of itself; kUnsupported for a kind that does neither.
Result<inference::HandoffAbility> make_ability(std::string_view kind, const HandoffWish& wish,
                                               const EngineFacts& facts, std::string_view host);

/// The text of the object at `path` (keys; "0" enters the first element of an array), byte for byte
/// as it stands in `json`. Empty if there is none.
std::string raw_object(std::string_view json, std::initializer_list<std::string_view> path);

/// The object with the text member `key` set to `value`, all others byte for byte. kCorrupt for
/// what is no object.
Result<std::string> with_text_member(std::string_view object, std::string_view key,
                                     std::string_view value);

/// "host:port" of a giver's meeting point, taken apart; an IPv6 host keeps its brackets.
struct MeetingPoint {
  std::string_view host;
  uint16_t port = 0;
};
Result<MeetingPoint> read_meeting_point(std::string_view text);

}  // namespace stator::engine::adapters
