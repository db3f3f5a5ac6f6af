// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/engine/sim/sim_core.h"
#include "stator/lab/simulator/distribution.h"
#include "stator/lab/simulator/report.h"
#include "stator/lab/simulator/timeline.h"

namespace stator::simulator {

enum class RequestStatus : uint8_t {
  kCompleted,
  kRejected,    ///< no engine could ever hold it
  kUnroutable,  ///< nobody could take it
  kShed,        ///< all workers too busy, and the queue full or too slow
  kLost,        ///< with its worker, once too often
};

/// The life of one request. Times that were not reached are those of the arrival.
struct RequestRecord {
  uint64_t line = 0;
  std::string request_id;
  std::string session;
  uint32_t turn = 0;
  uint32_t input_tokens = 0;
  uint32_t output_tokens = 0;   ///< asked for, and given when completed
  uint32_t cached_tokens = 0;   ///< at its first admission
  uint32_t host_tokens = 0;     ///< of those, in host memory
  uint32_t overlap_blocks = 0;  ///< as the router believed
  uint32_t admissions = 0;
  uint32_t migrations = 0;  ///< workers it lost
  uint32_t prefill_worker = 0;
  uint32_t worker = 0;
  TimePoint arrival{};
  TimePoint admitted{};
  TimePoint first_token{};
  TimePoint second_token{};
  TimePoint last_token{};
  RequestStatus status = RequestStatus::kCompleted;
};

/// One line of JSON.
std::string render_json(const RequestRecord& record);

/// Adds up what happens in a simulation. Memory does not grow with the requests beyond the bound of
/// Distribution.
class Recorder {
 public:
  using Sink = std::function<void(const RequestRecord&)>;

  /// `sink`, if any, gets every request when it ends.
  Recorder(uint32_t workers, Objectives objectives, Sink sink = {})
      : objectives_(objectives), sink_(std::move(sink)), workers_(workers), busy_(workers) {}

  void on_arrival(TimePoint now);
  /// Passes of a worker; admissions are reported with on_admission().
  void on_passes(uint32_t worker, const engine::SimOutcome& outcome);
  void on_admission(uint32_t worker, const RequestRecord& record,
                    const engine::SimOutcome::Admission& admission);
  void on_prefilled(uint32_t worker) { ++at(worker).requests; }
  /// Between two tokens that came from different workers.
  void on_gap(Duration gap);
  /// What held from the last call until `now`.
  void on_time(TimePoint now, const Timeline::Gauges& gauges) {
    waiting_max_ = std::max(waiting_max_, gauges.waiting);
    timeline_.advance(now, gauges);
  }
  /// It has ended, one way or another.
  void on_end(const RequestRecord& record);

  /// The figures; configuration and wall time are the caller's to fill in.
  Report make_report();
  uint64_t ended() const { return completed_ + rejected_ + unroutable_ + shed_ + lost_; }

  /// So far.
  struct Totals {
    uint64_t arrived = 0;
    uint64_t completed = 0;
    uint64_t input_tokens = 0;  ///< of completed requests
    uint64_t output_tokens = 0;
  };
  Totals totals() const { return {arrived_, completed_, input_tokens_, output_tokens_}; }

 private:
  /// A worker's figures; fleets may grow.
  WorkerReport& at(uint32_t worker);
  bool is_good(const RequestRecord& record) const;

  Objectives objectives_;
  Sink sink_;
  std::vector<WorkerReport> workers_;
  std::vector<Duration> busy_;  // by worker; whole numbers, so that the order does not matter
  uint64_t arrived_ = 0;
  uint64_t completed_ = 0;
  uint64_t rejected_ = 0;
  uint64_t unroutable_ = 0;
  uint64_t shed_ = 0;
  uint64_t lost_ = 0;
  uint64_t migrated_ = 0;
  uint64_t input_tokens_ = 0;
  uint64_t output_tokens_ = 0;
  uint64_t good_ = 0;
  uint64_t good_output_tokens_ = 0;
  uint64_t admitted_tokens_ = 0;
  uint64_t cached_tokens_ = 0;
  uint64_t host_tokens_ = 0;
  uint64_t offloaded_blocks_ = 0;
  uint64_t first_admitted_tokens_ = 0;
  uint64_t first_cached_tokens_ = 0;
  uint64_t waiting_max_ = 0;
  Timeline timeline_;
  TimePoint first_arrival_{};
  TimePoint last_end_{};
  Distribution ttft_, ttst_, tpot_, itl_, e2e_, queue_, user_, request_rate_;
};

}  // namespace stator::simulator
