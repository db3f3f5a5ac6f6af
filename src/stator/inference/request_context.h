// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace stator::inference {

/// What travels with a request beside the work: nothing in it changes a token. Shared by all
/// attempts and choices of a request; never changed once it is made.
struct RequestContext {
  /// W3C Trace Context of the span that asks; empty: nobody traces it.
  std::string traceparent;
  std::string tracestate;
  /// Headers that the client wants engines to see (x-dynamo-meta-*), without their prefix.
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string session;         ///< the conversation it belongs to; empty: none
  std::string parent_session;  ///< of an agent's child: who started it; empty: nobody
  bool session_final = false;  ///< the conversation's last request: what is kept for it may go

  friend bool operator==(const RequestContext&, const RequestContext&) = default;

  static constexpr size_t kMetadataMax = 64;               ///< entries
  static constexpr size_t kMetadataBytesMax = 64UL << 10;  ///< names and values together
};

}  // namespace stator::inference
