// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace stator::parsers {

/// What stands before a message of a channel format.
struct MessageHeader {
  /// The part of a header that is being read.
  enum class Part : uint8_t { kRole, kChannel, kRest };

  std::string role;
  std::string channel;
  std::string recipient;
};

/// Reads the words of a header between two markers: a role or a channel (the first word, by
/// `part`), `to=` and a recipient, a content type. Models also glue `to=` to the word before it, or
/// put a space behind it.
void read_header(std::string_view text, MessageHeader::Part part, MessageHeader& header);

/// What stands in a header behind its words, where only the marker of the message is missing. Empty
/// for a content type, or what may be half a header.
std::string_view find_forgotten_message(std::string_view text, MessageHeader::Part part);

/// Where a recipient begins that `text` ends with (`to=name`), or may do when more has come
/// (`… t`). text.size(): nowhere. Looks at `max_bytes` at most.
size_t find_trailing_recipient(std::string_view text, size_t max_bytes);

}  // namespace stator::parsers
