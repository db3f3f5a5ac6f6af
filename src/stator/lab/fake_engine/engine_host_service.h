// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/engine/api/engine.h"
#include "stator/lab/fake_engine/fake_config.h"
#include "stator/lab/fake_engine/generation.h"
#include "stator/lab/fake_engine/published_blocks.h"
#include "stator/net/shard.h"

namespace stator::fake_engine {

/// Who gets the output of one job. Called on the shard's loop.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  /// Each choice ends with one delta that has `finish`. May call EngineHost::cancel.
  virtual void on_delta(ChoiceDelta delta) = 0;
  /// The job is over.
  virtual void on_failure(const Error& error) = 0;
};

/// Where KV events go once they have tokens. Called on the shard's loop.
class EventOutlet {
 public:
  virtual ~EventOutlet() = default;
  virtual void on_events(WireBatch batch) = 0;
};

/// The simulated engines behind a fake server, one per data-parallel rank: requests of any dialect
/// in, choices out, KV events with their tokens. Everything on one shard's loop, which must outlive
/// it; stop() is called on the loop or after it ended.
class EngineHost {
 public:
  /// kInvalidArgument for an engine config that contradicts itself.
  static Result<std::unique_ptr<EngineHost>> create(const FakeConfig& config,
                                                    const FakeModel& model, net::Shard& shard,
                                                    Metrics& metrics);
  ~EngineHost();
  EngineHost(const EngineHost&) = delete;
  EngineHost& operator=(const EngineHost&) = delete;

  /// `outlet` may be null and outlives the host. Before start().
  void set_outlet(EventOutlet* outlet) { outlet_ = outlet; }
  Status start();
  void stop();

  using JobId = uint64_t;
  /// kInvalidArgument, kOverloaded: as Engine::submit; nothing was started then. `observer` must
  /// live until the job ended or was cancelled.
  Result<JobId> submit(GenerateSpec spec, JobObserver& observer);
  void cancel(JobId job);
  /// Ends all jobs: each observer gets kCancelled.
  void cancel_all();

  uint32_t ranks() const { return static_cast<uint32_t>(ranks_.size()); }
  engine::LoadReport load(uint32_t rank) const;
  const engine::EngineInfo& info() const;
  void reset_cache();
  bool idle() const { return jobs_.empty(); }
  uint64_t unknown_blocks() const;

 private:
  class Rank;
  struct Job;
  struct Place {
    JobId job;
    uint32_t choice;
  };
  EngineHost(const FakeConfig& config, const FakeModel& model, net::Shard& shard);
  Status add_rank(uint32_t rank, Metrics& metrics);
  Status submit_choice(JobId id, Job& job, uint32_t choice);
  void on_step(uint32_t rank, inference::StepOutput& output);
  void on_output(uint32_t rank, const inference::StepOutput& output, const inference::Delta& delta);
  void on_failed(const inference::Failure& failure);
  /// Reads the events up to and including `last`.
  void drain_events(uint32_t rank, uint64_t last);
  uint32_t least_loaded() const;

  const FakeConfig& config_;
  const FakeModel& model_;
  net::Shard& shard_;
  EventOutlet* outlet_ = nullptr;
  std::vector<std::unique_ptr<Rank>> ranks_;
  FlatMap<JobId, std::unique_ptr<Job>> jobs_;
  FlatMap<RequestId, Place> places_;
  uint64_t next_id_ = 1;
};

}  // namespace stator::fake_engine
