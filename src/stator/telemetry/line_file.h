// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"
#include "stator/net/thread.h"

namespace stator::telemetry {

/// A file that gets lines: from any thread, in the time of a copy, written by a thread of its own.
///
/// L1  Nobody waits for the disk: beyond `buffer_bytes_max` lines are dropped and counted, and so
///     are those that cannot be written.
/// L2  A line is whole, or not there.
/// L3  Of `bytes_max` the file becomes PATH.1, PATH.1 becomes PATH.2 …, at most `files_max` of
///     them. What is no regular file (standard error, a pipe) is never turned over.
/// L4  Who moves the file away (logrotate) gets a new one within a second.
/// L5  Compressed ones are PATH.000000.jsonl.gz, PATH.000001.jsonl.gz …, beginning behind the last
///     that is there; of `bytes_max` before compression the next begins, and the oldest beyond
///     `files_max` earlier ones is removed. Each write is a gzip member, so what is there
///     can be read at any time.
class LineFile {
 public:
  struct Options {
    std::string path;  ///< "-": standard output, which is never turned over
    uint64_t bytes_max = 0;
    uint32_t files_max = 5;
    uint64_t buffer_bytes_max = 8ULL << 20;
    bool compressed = false;
    std::string name;  ///< in metrics
  };
  /// kIo: it cannot be opened.
  static Result<std::unique_ptr<LineFile>> open(Options options, Clock& clock, Metrics& metrics);
  /// Writes what is there.
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  /// `line` ends with its newline.
  void append(std::string_view line);

 private:
  LineFile(Options options, Clock& clock, Metrics& metrics);
  Status reopen();
  void loop();
  void write(const std::string& lines);
  std::string file_path() const;
  bool write_part(std::string_view part);
  bool write_all(std::string_view text);
  void turn_over();
  void check_moved();
  void complain(const std::string& why);

  const Options options_;
  Clock& clock_;
  Counter written_;
  Counter dropped_full_;
  Counter dropped_disk_;
  io::FileDescriptor file_;
  bool regular_ = false;  // it can be turned over
  uint32_t segment_ = 0;  // of compressed ones
  uint64_t bytes_ = 0;    // in it, before compression
  bool broken_ = false;   // the last write left a part of a line
  TimePoint complained_{};
  Mutex mutex_;
  std::condition_variable_any wake_;
  std::string waiting_ STATOR_GUARDED_BY(mutex_);
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  net::Thread thread_;
};

}  // namespace stator::telemetry
