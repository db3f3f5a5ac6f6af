// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/result.h"
#include "stator/scaling/metrics_page.h"
#include "stator/scaling/observation.h"

namespace stator::scaling {

/// Which series of a page count.
struct ObserverConfig {
  std::string prefix = "dynamo_frontend";  ///< of frontends' metrics
  std::string model;                       ///< empty: all
  std::string name_space;                  ///< label dynamo_namespace; empty: all
  double block_size = 16;                  ///< tokens per KV block
  double ttft_ms = 500, itl_ms = 50;       ///< goals, to tell what was late
  bool from_router = false;                ///< counts and lengths of the router, not of frontends
};

/// Looks at the metrics pages of frontends: `GET /metrics` of each, or the text that this process
/// would answer. Keeps the counters of the last look. A pure core.
///
///   observer.begin();
///   observer.add("http://a:8000", page);            // each source, or fail() for it
///   const Observation seen = observer.end(now_s);
///
/// A counter that fell, is no number, or a source that did not answer makes the look untrusted:
/// nothing is decided on half of the traffic. The next look covers the time of one that a source
/// did not answer; where counters began again, it counts from the new values.
class PageObserver {
 public:
  explicit PageObserver(ObserverConfig config) : config_(std::move(config)) {}
  void begin();
  void add(std::string_view source, const MetricsPage& page);
  void fail(std::string_view source, std::string_view why);
  Observation end(double now_s);

 private:
  /// Cumulative sums of one source, in a fixed order, with the names they are told by.
  struct Counters {
    std::map<std::string, double, std::less<>> values;
    std::map<double, double> ttft_buckets, itl_buckets;
  };
  bool counts(const Sample& sample) const;
  Counters read(const MetricsPage& page) const;
  void read_loads(const MetricsPage& page);
  void subtract(std::string_view source, const Counters& before, const Counters& now);
  void complain(std::string text);

  const ObserverConfig config_;
  std::map<std::string, Counters, std::less<>> last_;
  std::map<std::string, Counters, std::less<>> now_;
  std::map<std::string, uint32_t, std::less<>> missing_;  // looks in a row, of sources in last_
  std::map<std::pair<uint64_t, uint32_t>, WorkerLoad> loads_;
  Observation seen_;
  bool complete_ = false;  // every source was seen before, too
  bool restart_ = false;   // counters began again: windows do, too
  double last_s_ = -1;
};

}  // namespace stator::scaling
