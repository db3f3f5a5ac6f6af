// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "stator/lab/fake_engine/engine_host_service.h"

namespace stator::fake_engine {

/// KV events as TensorRT-LLM keeps them until somebody reads them: JSON, each with the next id of
/// its rank. On the loop.
///
/// T1  At most `events_max` wait; beyond, the oldest are gone, which readers see as a gap in ids.
class TrtllmEvents final : public EventOutlet {
 public:
  TrtllmEvents(uint32_t ranks, uint32_t total_blocks, uint32_t window_size, size_t events_max);

  void on_events(WireBatch batch) override;
  /// A JSON list of everything that waits; then nothing waits.
  std::string drain();
  size_t waiting() const { return events_.size(); }

 private:
  void add(uint32_t rank, const std::string& data);

  const uint32_t window_size_;
  const size_t events_max_;
  std::vector<uint64_t> next_ids_;  // by rank
  std::deque<std::string> events_;
};

}  // namespace stator::fake_engine
