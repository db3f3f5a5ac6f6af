// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/mutex.h"

namespace stator {

/// Counters, gauges and histograms, rendered as Prometheus text 0.0.4.
///
/// Every thread that counts gets its own slot block, so an increment is one uncontended add to a
/// line no other thread writes; a scrape sums the blocks. Registration takes a lock and happens at
/// start or when a new label value appears; handles are two words, cheap to copy, and live as long
/// as the registry. Registering the same name and labels again returns the same series.
///
///   Metrics metrics;
///   Counter shed = metrics.counter("stator_requests_shed_total", "requests refused", {{"reason",
///   "queue"}}); shed.add();
class Metrics;

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

/// Monotonic count. A default-made handle counts into nothing.
class Counter {
 public:
  Counter() = default;
  void add(uint64_t n = 1) const;
  uint64_t value() const;

 private:
  friend class Metrics;
  Counter(Metrics* metrics, uint32_t slot) : metrics_(metrics), slot_(slot) {}
  Metrics* metrics_ = nullptr;
  uint32_t slot_ = 0;
};

/// A value that goes both ways. `add` and `set` may come from any thread.
class Gauge {
 public:
  Gauge() = default;
  void set(double value) const;
  void add(double delta) const;
  double value() const;

 private:
  friend class Metrics;
  explicit Gauge(std::atomic<double>* cell) : cell_(cell) {}
  std::atomic<double>* cell_ = nullptr;
};

/// Distribution over fixed upper bounds (ascending; +Inf is implied). The sum has a resolution of
/// 1e-6 of the unit.
class Histogram {
 public:
  Histogram() = default;
  void observe(double value, uint64_t times = 1) const;
  /// Shows which trace an observed `value` belongs to, beside its bucket: the last one of each
  /// bucket, in the OpenMetrics format only. Takes a lock: for requests that are traced. `trace_id`
  /// is 32 hex digits.
  void exemplify(double value, std::string_view trace_id, WallTime at) const;
  uint64_t count() const;

 private:
  friend class Metrics;
  Histogram(Metrics* metrics, uint32_t slot, std::span<const double> bounds)
      : metrics_(metrics), slot_(slot), bounds_(bounds) {}
  Metrics* metrics_ = nullptr;
  uint32_t slot_ = 0;  // bounds.size() + 1 buckets, then the sum in millionths
  std::span<const double> bounds_;
};

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  Counter counter(std::string_view name, std::string_view help, const MetricLabels& labels = {});
  Gauge gauge(std::string_view name, std::string_view help, const MetricLabels& labels = {});
  Histogram histogram(std::string_view name, std::string_view help, std::span<const double> bounds,
                      const MetricLabels& labels = {});
  /// A gauge computed at scrape time; `read` runs on the scraping thread, without the registration
  /// lock, and must be thread-safe.
  void gauge_callback(std::string_view name, std::string_view help, const MetricLabels& labels,
                      std::function<double()> read);

  /// The same for a count that somebody else keeps: it must never fall.
  void counter_callback(std::string_view name, std::string_view help, const MetricLabels& labels,
                        std::function<double()> read);

  /// The series is no longer shown: what it counted is gone. Its place is taken by the next new
  /// series of that name, so a name costs what it needed at most at once. Handles to it must not be
  /// used any more. A scrape under way may still call `read` of a gauge_callback: it should own
  /// what it reads. Unknown ones are ignored.
  void remove(std::string_view name, const MetricLabels& labels);

  /// Every series whose name begins with `name_prefix` has these labels, too, behind its own.
  /// Before the first series of that kind is registered.
  void label_all(std::string_view name_prefix, const MetricLabels& labels);

  enum class Format : uint8_t {
    kText,         ///< Prometheus text 0.0.4
    kOpenMetrics,  ///< OpenMetrics 1.0.0, with exemplars
  };
  /// The exposition text. Takes the registration lock; safe while other threads count.
  std::string render(Format format = Format::kText) const;
  /// What the HTTP header Accept asks for.
  static Format format_for(std::string_view accept);
  static std::string_view content_type(Format format);

  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

 private:
  friend class Counter;
  friend class Histogram;
  struct Series;
  struct Family;
  struct SlotBlock;
  struct Chunk;
  struct Exemplars;
  // Per process, not per registry: a thread's index. Beyond kThreadsMax threads share a block,
  // which stays correct because increments are atomic.
  static constexpr uint32_t kThreadsMax = 64;
  // A thread's block grows by this many at a time, up to what a fleet of thousands needs.
  static constexpr uint32_t kPageSlots = 4096;
  static constexpr uint32_t kPagesMax = 64;

  std::atomic<uint64_t>& slot(uint32_t index);
  uint64_t sum(uint32_t index) const;
  Family& family(std::string_view name, std::string_view help, std::string_view type)
      STATOR_REQUIRES(mutex_);
  Series& series(Family& family, const MetricLabels& labels) STATOR_REQUIRES(mutex_);
  void render_series(std::string& out, const Family& family, const Series& series,
                     Format format) const STATOR_REQUIRES(mutex_);
  void render_histogram(std::string& out, const Family& family, const Series& series,
                        Format format) const STATOR_REQUIRES(mutex_);
  std::vector<Chunk> render_chunks(Format format) const STATOR_REQUIRES(mutex_);
  void clear_slots(uint32_t first, uint32_t count) STATOR_REQUIRES(mutex_);
  uint32_t take_slots(uint32_t count) STATOR_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Family>> families_ STATOR_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, MetricLabels>> common_ STATOR_GUARDED_BY(mutex_);
  const std::unique_ptr<Exemplars> exemplars_;  // locks itself
  uint32_t slots_used_ STATOR_GUARDED_BY(mutex_) = 0;
  std::atomic<SlotBlock*> blocks_[kThreadsMax] = {};
};

}  // namespace stator
