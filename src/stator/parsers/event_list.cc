// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/event_list.h"

#include <cstring>

namespace stator::parsers {

std::string_view describe(Recovery recovery) {
  switch (recovery) {
    case Recovery::kMalformedBody:
      return "malformed_body";
    case Recovery::kTruncatedCall:
      return "truncated_call";
    case Recovery::kMissingName:
      return "missing_name";
    case Recovery::kMissingArguments:
      return "missing_arguments";
    case Recovery::kUnknownTool:
      return "unknown_tool";
    case Recovery::kSurplusCall:
      return "surplus_call";
    case Recovery::kStrayMarker:
      return "stray_marker";
    case Recovery::kRepairedArguments:
      return "repaired_arguments";
    case Recovery::kNotACall:
      return "not_a_call";
    case Recovery::kTooLarge:
      return "too_large";
  }
  return "unknown";
}

void EventList::start(EventKind kind, uint32_t index, std::string_view bytes) {
  if (bytes.empty()) {
    return;
  }
  STATOR_ASSERT(bytes.size() <= kMaxBytes - bytes_.size(), kMaxBytesRule);
  events_.push_back({.kind = kind,
                     .call_index = index,
                     .offset = static_cast<uint32_t>(bytes_.size()),
                     .length_bytes = static_cast<uint32_t>(bytes.size())});
  bytes_.append(bytes);
}

void EventList::begin_call(uint32_t index, std::string_view id, std::string_view name) {
  events_.push_back({.kind = EventKind::kCallBegin,
                     .call_index = index,
                     .offset = static_cast<uint32_t>(bytes_.size()),
                     .length_bytes = static_cast<uint32_t>(name.size()),
                     .id_length_bytes = static_cast<uint32_t>(id.size())});
  const size_t from = bytes_.size();
  const size_t end = from + id.size() + name.size();
  // libstdc++ 12 passes the new capacity, not the size that was asked for.
  bytes_.resize_and_overwrite(end, [&](char* bytes, size_t /*room*/) {
    std::memcpy(bytes + from, id.data(), id.size());
    std::memcpy(bytes + from + id.size(), name.data(), name.size());
    return end;
  });
}

void EventList::end_call(uint32_t index, bool complete) {
  events_.push_back({.kind = EventKind::kCallEnd,
                     .complete = complete,
                     .call_index = index,
                     .offset = static_cast<uint32_t>(bytes_.size())});
}

void EventList::add_recovery(Recovery recovery) {
  events_.push_back({.kind = EventKind::kRecovered,
                     .recovery = recovery,
                     .offset = static_cast<uint32_t>(bytes_.size())});
}

}  // namespace stator::parsers
