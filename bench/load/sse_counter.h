// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stator::bench {

/// What one server-sent event stream carried so far.
struct SseCounts {
  size_t events = 0;          ///< `data:` lines, the closing [DONE] included
  size_t content_events = 0;  ///< of these, with text that is not empty
  bool done = false;          ///< [DONE] was seen
  bool error = false;         ///< an `error` event or an error object was seen
};

/// Counts the events of a stream whose bytes arrive in pieces of any size: one read may hold many
/// events, and one event may span many reads. A line longer than 1 MiB counts as an error and is
/// dropped. Looks for OpenAI's fields by name instead of parsing the JSON, so that the generator
/// costs less than the server it measures.
class SseCounter {
 public:
  void feed(std::string_view bytes);
  void reset();
  const SseCounts& counts() const { return counts_; }

 private:
  void take_line(std::string_view line);

  SseCounts counts_;
  std::string partial_line_;
};

}  // namespace stator::bench
