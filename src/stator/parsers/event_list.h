// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/assert.h"

namespace stator::parsers {

/// What a generation consists of, as flat data: a list of events over one string of bytes.
///
///   EventList events;                                  // one per stream, cleared after each use
///   parser->feed(state, delta, events);
///   for (const Event& event : events.all()) {
///     if (event.kind == EventKind::kText) send(events.bytes(event));
///   }
///   events.clear();
///
/// Order is the order of the output. Neighbouring pieces of the same kind and call are one event.

enum class EventKind : uint8_t {
  kText,           ///< part of `content`
  kReasoning,      ///< part of `reasoning_content`
  kCallBegin,      ///< a tool call starts: `call_id`, `name`
  kCallArguments,  ///< a further fragment of its arguments, JSON text
  kCallEnd,        ///< its arguments are complete, or will never be (`complete`)
  kRecovered,      ///< something malformed was survived: count it (`recovery`)
};

/// What was survived. Names for metrics: `describe`.
enum class Recovery : uint8_t {
  kMalformedBody,      ///< a call's body could not be read: it is removed from the content
  kTruncatedCall,      ///< the stream ended inside a call
  kMissingName,        ///< a call without a name: dropped
  kMissingArguments,   ///< a call without arguments: dropped, or given `{}`, as the family says
  kUnknownTool,        ///< a call of a tool nobody declared: dropped, if so configured
  kSurplusCall,        ///< a second call although parallel calls are off: dropped
  kStrayMarker,        ///< a marker without its counterpart: removed from the content
  kRepairedArguments,  ///< bytes that are not JSON were spelled correctly
  kNotACall,           ///< looked like a call, was not: given back as text
  kTooLarge,           ///< a name or value beyond the limits: its call is dropped
};
inline constexpr size_t kRecoveryCount = 10;
/// "malformed_body" and so on; static storage.
std::string_view describe(Recovery recovery);

struct Event {
  EventKind kind = EventKind::kText;
  Recovery recovery = Recovery::kMalformedBody;  ///< kRecovered only
  bool complete = true;                          ///< kCallEnd: false if the arguments are cut off
  uint32_t call_index = 0;       ///< kCall…: position of the call in the message, from 0
  uint32_t offset = 0;           ///< of its bytes in the list
  uint32_t length_bytes = 0;     ///< kCallBegin: of the name
  uint32_t id_length_bytes = 0;  ///< kCallBegin: of the id, which stands before the name
};

class EventList {
 public:
  void clear() {
    events_.clear();
    bytes_.clear();
  }
  bool empty() const { return events_.empty(); }
  std::span<const Event> all() const { return events_; }
  size_t size_bytes() const { return bytes_.size(); }

  /// The text of kText, kReasoning and kCallArguments. Valid until the list changes.
  std::string_view bytes(const Event& event) const {
    return std::string_view(bytes_).substr(event.offset + event.id_length_bytes,
                                           event.length_bytes);
  }
  /// Of kCallBegin.
  std::string_view name(const Event& event) const { return bytes(event); }
  std::string_view call_id(const Event& event) const {
    return std::string_view(bytes_).substr(event.offset, event.id_length_bytes);
  }

  void add_text(std::string_view bytes) { extend(EventKind::kText, 0, bytes); }
  void add_reasoning(std::string_view bytes) { extend(EventKind::kReasoning, 0, bytes); }
  void begin_call(uint32_t index, std::string_view id, std::string_view name);
  void add_arguments(uint32_t index, std::string_view bytes) {
    extend(EventKind::kCallArguments, index, bytes);
  }
  void end_call(uint32_t index, bool complete);
  void add_recovery(Recovery recovery);

 private:
  static constexpr size_t kMaxBytes = UINT32_MAX;
  static constexpr const char* kMaxBytesRule = "one batch of events is below 4 GiB";

  void extend(EventKind kind, uint32_t index, std::string_view bytes) {
    if (events_.empty() || events_.back().kind != kind || events_.back().call_index != index) {
      start(kind, index, bytes);
      return;
    }
    STATOR_ASSERT(bytes.size() <= kMaxBytes - bytes_.size(), kMaxBytesRule);
    events_.back().length_bytes += static_cast<uint32_t>(bytes.size());
    bytes_.append(bytes);
  }
  void start(EventKind kind, uint32_t index, std::string_view bytes);

  std::vector<Event> events_;
  std::string bytes_;
};

}  // namespace stator::parsers
