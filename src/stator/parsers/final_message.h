// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stator/parsers/event_list.h"

namespace stator::parsers {

/// What a client gets that did not ask for a stream: the sum of a choice's events.
///
///   FinalMessage message;
///   message.add(events);     // after each feed and after finish
struct FinalMessage {
  struct Call {
    std::string id;
    std::string name;
    std::string arguments;  ///< JSON text
    bool complete = false;  ///< false: cut off at the end of the stream
    friend bool operator==(const Call&, const Call&) = default;
  };

  std::string content;
  std::string reasoning;
  std::vector<Call> calls;

  void add(const EventList& events);
  friend bool operator==(const FinalMessage&, const FinalMessage&) = default;
};

}  // namespace stator::parsers
