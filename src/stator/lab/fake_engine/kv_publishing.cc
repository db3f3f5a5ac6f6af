// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/kv_publishing.h"

#include <algorithm>
#include <utility>

namespace stator::fake_engine {

Result<std::unique_ptr<KvPublishing>> KvPublishing::create(const FakeConfig& config,
                                                           PendingFaults& faults,
                                                           const Clock& clock, Metrics& metrics) {
  auto out = std::unique_ptr<KvPublishing>(new KvPublishing(config, faults, clock));
  for (uint32_t rank = 0; rank < config.dp_size; ++rank) {
    STATOR_TRY(auto publisher,
               EventPublisher::create(config.events, rank, config.release, metrics));
    out->publishers_.push_back(std::move(publisher));
  }
  return out;
}

void KvPublishing::on_events(WireBatch batch) {
  const bool is_vllm = config_.dialect == Dialect::kVllm;
  if (is_vllm) {
    const auto cleared = [](const WireEvent& event) {
      return std::holds_alternative<WireCleared>(event);
    };
    if (std::ranges::all_of(batch.events, cleared)) {
      cleared_[batch.dp_rank] = true;
      return;
    }
    if (cleared_[batch.dp_rank]) {
      cleared_[batch.dp_rank] = false;
      batch.events.insert(batch.events.begin(), WireCleared{});
    }
  }
  if (const uint32_t announced = faults_.block_size()) {
    for (WireEvent& event : batch.events) {
      if (auto* stored = std::get_if<WireStored>(&event)) {
        stored->block_size = announced;
      }
    }
  }
  batch.unix_seconds = std::chrono::duration<double>(clock_.wall_now().time_since_epoch()).count();
  const EventConfig& form = config_.events;
  publishers_[batch.dp_rank]->publish(is_vllm ? encode_vllm_batch(batch, form.form, form.hash)
                                              : encode_sglang_batch(batch, form.form, form.hash),
                                      faults_.take_for_batch());
}

void KvPublishing::apply_faults() {
  const bool restart = faults_.take_restart_sequence();
  for (const auto& publisher : publishers_) {
    publisher->mute_replay(faults_.replay_muted());
    publisher->delay_replay(faults_.replay_delay());
    if (restart) {
      publisher->restart_sequence();
    }
  }
}

}  // namespace stator::fake_engine
