// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/telemetry/trace_context.h"

namespace stator::telemetry {

/// A step in a request's life.
enum class Step : uint8_t {
  kPrepared,    ///< parsed, rendered, tokenized
  kQueued,      ///< no worker had room: it waits in the router's queue
  kRouted,      ///< a worker was chosen
  kPrefill,     ///< a prefill worker was asked for the prompt
  kHandedOver,  ///< the prompt was computed there
  kSubmitted,   ///< sent to the worker that answers
  kFirstToken,  ///< of this attempt
  kLost,        ///< that worker was lost; it moves
  kEnded,
};
/// "prepared", "queued", …
std::string_view describe(Step step);

/// When a step came, and at which worker (0: at none).
struct Mark {
  Step step;
  TimePoint at;
  uint64_t worker = 0;
  uint32_t tokens = 0;  ///< kRouted: expected to be cached there; kFirstToken: found cached
};

/// What is known of one request when it ends: for log lines, spans and operators. No text of
/// prompts or answers.
struct RequestFacts {
  std::string method;
  std::string path;
  std::string client;        ///< address
  std::string request_id;    ///< UUID; empty for requests that do not generate
  std::string x_request_id;  ///< as the client sent it; empty: it did not
  std::string model;
  std::string tenant;
  std::string key_id;
  std::string_view role;  ///< static text
  int status = 0;         ///< 0: the client left before an answer began
  bool stream = false;
  std::string error_type;            ///< as in metrics; empty: it went well
  std::string_view finish_reason{};  ///< static text

  WallTime received_wall;
  TimePoint received;
  std::optional<TimePoint> first_token;
  TimePoint last_token;
  TimePoint ended;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t output_tokens = 0;
  uint32_t migrations = 0;
  std::optional<uint64_t> worker;  ///< that answered last
  uint32_t dp_rank = 0;
  std::optional<uint64_t> prefill_worker;

  TraceContext trace;  ///< its own span's id
  SpanId parent{};     ///< of the client's span; all zero: none
  std::string trace_state;
  std::vector<Mark> marks;  ///< at most kMarksMax
  static constexpr size_t kMarksMax = 64;
  static constexpr size_t kMarksUsual = 8;

  uint32_t block_size = 0;       ///< of `blocks`
  std::vector<uint64_t> blocks;  ///< hashes of the prompt's full blocks; for request traces
  uint32_t max_tokens = 0;

  void mark(const Mark& mark) {
    if (marks.empty()) {
      marks.reserve(kMarksUsual);
    }
    if (marks.size() < kMarksMax) {
      marks.push_back(mark);
    }
  }
  /// A step of its first choice, and what that says of its workers.
  void note(const Mark& mark, uint32_t rank);
  WallTime wall(TimePoint at) const { return received_wall + (at - received); }
  std::optional<double> ttft_ms() const;
  /// Mean time between tokens after the first one.
  std::optional<double> itl_ms() const;
  double duration_ms() const;
};

/// One line of the access log, with its end.
std::string access_line_json(const RequestFacts& facts);
std::string access_line_human(const RequestFacts& facts);
/// One record of schema dynamo.request.trace.v1, with the line's end.
std::string request_trace_line(const RequestFacts& facts);
/// What operators see of a request that has ended.
void append_request(std::string& out, const RequestFacts& facts);
/// The same of one that runs: with its phase and age, without a status.
void append_running(std::string& out, RequestFacts facts, TimePoint now);

}  // namespace stator::telemetry
