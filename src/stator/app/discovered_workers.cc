// SPDX-License-Identifier: Apache-2.0
#include "stator/app/discovered_workers.h"

#include <utility>

#include "stator/core/log.h"

namespace stator::app {
namespace {

constexpr std::string_view kLogTarget = "router";

services::SelectionWorker describe(const discovery::InstanceRecord& record) {
  const discovery::ModelCard& card = record.model;
  services::SelectionWorker worker;
  worker.id = record.key.worker;
  worker.partition = {card.name, "default"};
  worker.endpoint = record.address;
  worker.block_size = card.block_size;
  worker.dp_size = card.dp_size;
  worker.max_num_batched_tokens = card.max_num_batched_tokens;
  worker.total_kv_blocks = card.total_kv_blocks;
  worker.kv_events = card.kv_events;
  worker.draining = record.state != discovery::InstanceState::kReady;
  return worker;
}

}  // namespace

void DiscoveredWorkers::start(discovery::Discovery& discovery) {
  watch_ = discovery.watch({.endpoint = "generate"}, shard_, *this);
}

void DiscoveredWorkers::on_added(const discovery::InstanceRecord& record) {
  on_updated(record);
  const auto [entry, is_new] = workers_.try_emplace(record.key.worker);
  if (!is_new) {
    return;
  }
  entry->second = {.partition = {record.model.name, "default"},
                   .block_size = record.model.block_size,
                   .dp_size = record.model.dp_size};
  if (record.model.kv_events) {
    entry->second.follower = connector_.follow_events(record, shard_, *this);
  }
  log::info(kLogTarget, "found a worker",
            {{"worker", record.key.worker.value()}, {"model", record.model.name}});
}

void DiscoveredWorkers::on_updated(const discovery::InstanceRecord& record) {
  if (selection_ == nullptr) {
    return;
  }
  if (const Status put = selection_->put_worker(describe(record)); !put) {
    log::warn(kLogTarget, put.error().message(), {{"worker", record.key.worker.value()}});
  }
}

void DiscoveredWorkers::on_removed(const discovery::InstanceRecord& last) {
  const WorkerId worker = last.key.worker;
  const auto known = workers_.find(worker);
  if (known == workers_.end()) {
    return;
  }
  known->second.follower.reset();
  if (selection_ != nullptr) {
    selection_->remove_worker(worker).ignore("it was refused when it came");
  } else {
    indexer_.unfollow(known->second.partition, worker, std::nullopt)
        .ignore("it never told anything");
  }
  workers_.erase(known);
}

void DiscoveredWorkers::on_snapshot(WorkerId worker, std::vector<kv::KvEvent> blocks) {
  const auto known = workers_.find(worker);
  if (known == workers_.end()) {
    return;
  }
  for (uint32_t rank = 0; rank < known->second.dp_size; ++rank) {
    apply(worker, known->second, {.dp_rank = rank, .data = kv::AllCleared{}});
  }
  on_events(worker, std::move(blocks));
}

void DiscoveredWorkers::on_events(WorkerId worker, std::vector<kv::KvEvent> events) {
  const auto known = workers_.find(worker);
  if (known == workers_.end()) {
    return;
  }
  for (kv::KvEvent& event : events) {
    if (event.dp_rank < known->second.dp_size) {
      apply(worker, known->second, std::move(event));
    }
  }
}

void DiscoveredWorkers::apply(WorkerId worker, const Entry& entry, kv::KvEvent event) {
  const WorkerKey key{worker, event.dp_rank};
  const Status applied = indexer_.apply(entry.partition, entry.block_size, {key, std::move(event)});
  if (!applied) {
    log::warn(kLogTarget, applied.error().message(), {{"worker", worker.value()}});
  }
}

}  // namespace stator::app
