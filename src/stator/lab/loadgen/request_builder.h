// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/result.h"
#include "stator/lab/loadgen/workload.h"

namespace stator::loadgen {

enum class Endpoint : uint8_t { kChat, kCompletions };

struct RequestOptions {
  Endpoint endpoint = Endpoint::kChat;
  std::string model;
  bool stream = true;
  bool include_usage = true;  ///< asks a stream for its token counts
  bool ignore_eos = false;
  std::string extra_body;  ///< a JSON object whose fields are added; they replace our own
  std::string host;        ///< of the Host header
  std::string path;
  std::string api_key;
  std::vector<std::pair<std::string, std::string>> headers;
};

/// Writes whole HTTP requests. Thread-safe once made; the workload must outlive it.
class RequestBuilder {
 public:
  /// kInvalidArgument when extra_body is no JSON object or a header has a line break.
  static Result<RequestBuilder> create(const RequestOptions& options, const Workload& workload);

  /// Replaces `out` by head and body. `history` is what add_to_history made of the turns before.
  void build(uint64_t session, uint32_t turn, std::string_view history, std::string& out) const;
  /// `answer` is JSON text, still escaped, as the scanner captured it.
  void add_to_history(uint64_t session, uint32_t turn, std::string_view answer,
                      std::string& history) const;

 private:
  RequestBuilder(const RequestOptions& options, const Workload& workload);
  bool own(std::string_view field) const;
  void append_body(uint64_t session, uint32_t turn, std::string_view history,
                   std::string& body) const;

  const Workload* workload_;
  Endpoint endpoint_;
  std::string head_;   // up to the value of Content-Length
  std::string begin_;  // of the body, up to the messages or prompt
  std::string end_;    // behind max_tokens: the fields that never change
  bool writes_max_tokens_ = true;
  std::vector<std::string> extra_fields_;
};

}  // namespace stator::loadgen
