// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stator/lab/loadgen/histogram.h"

namespace stator::loadgen {

enum class Outcome : uint8_t {
  kOk,
  kHttpError,    ///< a status other than 200
  kStreamError,  ///< status 200, but an error in the stream, or nothing that is an answer
  kBroken,       ///< the connection or the answer broke off, or was not HTTP
  kNoConnection,
  kTimeout,
  kDropped,     ///< never sent: the backlog was full or the run ended
  kCancelled,   ///< by us, on purpose
  kUnfinished,  ///< still running when the run ended
};
std::string_view outcome_name(Outcome outcome);

/// One request. Times are nanoseconds from the start of the run; 0 where the thing did not happen.
struct Record {
  int64_t due = 0;       ///< when the schedule wanted it sent
  int64_t sendable = 0;  ///< the same, or later when the limit of requests in flight held it back
  int64_t sent = 0;      ///< just before it was sent, or before its connection was opened
  int64_t first = 0;     ///< first chunk that was not empty
  int64_t second = 0;
  int64_t last = 0;  ///< last one, or the end of an answer that was not a stream
  uint32_t input_tokens = 0;
  uint32_t output_tokens = 0;
  uint32_t chunks = 0;
  uint16_t status = 0;
  Outcome outcome = Outcome::kOk;
  bool counted_by_server = false;  ///< output_tokens come from `usage`
  bool streamed = false;
};

/// Records in blocks, so that growing never copies (a pause would delay sending). 72 bytes each.
class RecordLog {
 public:
  void add(const Record& record) {
    if (blocks_.empty() || blocks_.back().size() == kBlock) {
      blocks_.emplace_back().reserve(kBlock);
    }
    blocks_.back().push_back(record);
    ++size_;
  }
  size_t size() const { return size_; }
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const auto& block : blocks_) {
      for (const Record& record : block) {
        visit(record);
      }
    }
  }
  void take_all(RecordLog&& other);

 private:
  static constexpr size_t kBlock = 8192;
  std::vector<std::vector<Record>> blocks_;
  size_t size_ = 0;
};

/// How much the generator itself had to do on one thread.
struct ClientLoad {
  double busy_share = 0;     ///< of the time, not waiting for anything; preemption counts
  double starved_share = 0;  ///< of the time, ready to run without a core
  double wake_delay_ms = 0;  ///< the same time per turn
  double cpu_s = 0;          ///< without waiting_cpu_s
  double waiting_cpu_s = 0;  ///< awake for a launch that was due within microseconds, nothing to do
  Histogram turns;  ///< how long it handled events before it looked at its schedule or waited again
  uint64_t connections = 0;  ///< opened, or tried to
  uint64_t reconnects = 0;   ///< opened because the server had closed an idle one as it was used
  uint64_t held_back = 0;    ///< launches that in_flight_max held back
};

/// What one thread of a run brings home.
struct ThreadResult {
  RecordLog records;
  HistogramSeries gaps{kFirstPieceNanoseconds};  ///< between chunks, by when the request was sent
  ClientLoad client;
  std::map<std::string, uint64_t> errors;  ///< text of the failure → how often; at most kErrorsMax
  bool log_full = false;                   ///< stopped because of records_max
  bool gave_up = false;                    ///< stopped because nothing worked any more

  static constexpr int64_t kFirstPieceNanoseconds = 50'000'000;
  static constexpr size_t kErrorsMax = 32;
  void count_error(const std::string& text);
};

}  // namespace stator::loadgen
