// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/final_message.h"

#include "stator/core/assert.h"

namespace stator::parsers {

void FinalMessage::add(const EventList& events) {
  for (const Event& event : events.all()) {
    switch (event.kind) {
      case EventKind::kText:
        content.append(events.bytes(event));
        break;
      case EventKind::kReasoning:
        reasoning.append(events.bytes(event));
        break;
      case EventKind::kCallBegin:
        STATOR_ASSERT(event.call_index == calls.size(), "W1: calls begin in order");
        calls.push_back(
            {.id = std::string(events.call_id(event)), .name = std::string(events.name(event))});
        break;
      case EventKind::kCallArguments:
        calls[event.call_index].arguments.append(events.bytes(event));
        break;
      case EventKind::kCallEnd:
        calls[event.call_index].complete = event.complete;
        break;
      case EventKind::kRecovered:
        break;
    }
  }
}

}  // namespace stator::parsers
