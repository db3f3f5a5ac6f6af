// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stator/batches/batch_lines.h"
#include "stator/batches/batch_store.h"
#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/io/journal.h"
#include "stator/io/mapped_file.h"

namespace stator::batches {

/// A batch whose requests are being run.
///
/// R1  Each line is done once: its result is in the batch's journal before it counts, and a line
///     that has one is never given out again, after a restart neither.
/// R2  A line that was given out comes back by record() or retry(), or the process ends.
///
/// One thread.
class RunningBatch {
 public:
  /// Reads the input file and the results that are there. The file was checked before.
  static Result<std::unique_ptr<RunningBatch>> open(const BatchStore& store, const Entry& batch,
                                                    uint32_t lines_max);

  const std::string& id() const { return id_; }
  const std::string& endpoint() const { return endpoint_; }
  /// A line to run now; nothing if there is none, or all that is left waits for another try.
  const BatchLine* take(TimePoint now);
  void retry(uint32_t index, TimePoint at);
  Status record(const LineResult& result);
  Status sync() { return results_->sync(); }
  const BatchLine& line(uint32_t index) const { return lines_[index]; }
  uint32_t attempts(uint32_t index) const { return attempts_[index]; }

  bool complete() const { return completed_ + failed_ == lines_.size(); }
  uint32_t inflight() const { return inflight_; }
  uint32_t total() const { return static_cast<uint32_t>(lines_.size()); }
  uint32_t completed() const { return completed_; }
  uint32_t failed() const { return failed_; }
  /// Gives every line without a result this one.
  Status give_up(std::string_view code, std::string_view message);

  /// Writes output and error file to where their ids say; neither where it would be empty.
  struct Files {
    uint64_t output_bytes = 0;
    uint64_t error_bytes = 0;
  };
  Result<Files> write_files(const BatchStore& store, const Entry& batch);

 private:
  RunningBatch() = default;
  void count(const KeptResult& kept);

  struct Waiting {
    uint32_t index;
    TimePoint at;
  };

  std::string id_;
  std::string endpoint_;
  io::MappedFile input_;
  std::vector<BatchLine> lines_;
  std::vector<bool> done_;
  std::vector<uint8_t> attempts_;
  size_t next_ = 0;
  std::deque<Waiting> waiting_;  // for another try; at most what may be in flight
  uint32_t inflight_ = 0;
  uint32_t completed_ = 0;
  uint32_t failed_ = 0;
  std::optional<io::Journal> results_;
};

}  // namespace stator::batches
