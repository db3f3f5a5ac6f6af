// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace stator::bench {

/// Durations of one kind in milliseconds. Keeps the first four million; later ones are left out of
/// the percentiles.
class Samples {
 public:
  void add(double milliseconds);
  /// The value below which `share` of all lie; 0 without samples. Reorders the samples.
  double percentile(double share);

 private:
  std::vector<float> values_;
};

/// What a run measured, within its window.
struct Report {
  double seconds = 0;
  size_t completed = 0;                  ///< answers with status 200 that ended as they should
  std::map<std::string, size_t> errors;  ///< by status or kind of failure
  std::string first_error;               ///< start of the first error body
  size_t events = 0;
  size_t content_events = 0;
  size_t open = 0;             ///< streams still running at the end
  size_t open_with_first = 0;  ///< of these, with their first text
  double own_cpu_seconds = 0;
  double watched_cpu_seconds = 0;
  Samples latency;  ///< request sent to end of answer
  Samples ttft;     ///< request sent to first text of a stream

  /// One line, ended by a newline.
  std::string to_json();
};

}  // namespace stator::bench
