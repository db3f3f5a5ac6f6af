// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/trtllm_events.h"

#include <fmt/format.h>

#include "stator/json/writer.h"

namespace stator::fake_engine {
namespace {

using json::Writer;

constexpr int kPriority = 35;  // the engine's default

std::string stored_data(const WireStored& stored) {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("type").value("stored").key("parent_hash");
  stored.parent ? json.value(*stored.parent) : json.null();
  json.key("blocks").begin_array();
  for (size_t i = 0; i < stored.hashes.size(); ++i) {
    json.begin_object().key("type").value("stored_block").key("block_hash");
    json.value(stored.hashes[i]).key("tokens").begin_array();
    for (size_t t = i * stored.block_size; t < (i + 1) * stored.block_size; ++t) {
      json.begin_object().key("type").value("unique_token").key("token_id").value(stored.tokens[t]);
      json.key("token_extra_id").value(0).end_object();
    }
    json.end_array().key("mm_keys").begin_array().end_array().key("cache_level").value(0);
    json.key("priority").value(kPriority).end_object();
  }
  json.end_array().end_object();
  return out;
}

std::string removed_data(const std::vector<uint64_t>& hashes) {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("type").value("removed").key("block_hashes").begin_array();
  for (const uint64_t hash : hashes) {
    json.value(hash);
  }
  json.end_array().end_object();
  return out;
}

}  // namespace

TrtllmEvents::TrtllmEvents(uint32_t ranks, uint32_t total_blocks, uint32_t window_size,
                           size_t events_max)
    : window_size_(window_size), events_max_(events_max), next_ids_(ranks, 0) {
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    add(rank,
        fmt::format(R"({{"type":"created","num_blocks_per_cache_level":[{},0]}})", total_blocks));
  }
}

void TrtllmEvents::add(uint32_t rank, const std::string& data) {
  std::string out = fmt::format(R"({{"event_id":{},"data":{},"window_size":{})", next_ids_[rank]++,
                                data, window_size_);
  out += next_ids_.size() > 1 ? fmt::format(R"(,"attention_dp_rank":{}}})", rank) : "}";
  events_.push_back(std::move(out));
  while (events_.size() > events_max_) {
    events_.pop_front();
  }
}

void TrtllmEvents::on_events(WireBatch batch) {
  for (const WireEvent& event : batch.events) {
    if (const auto* stored = std::get_if<WireStored>(&event)) {
      add(batch.dp_rank, stored_data(*stored));
    } else if (const auto* removed = std::get_if<WireRemoved>(&event)) {
      add(batch.dp_rank, removed_data(removed->hashes));
    }
  }
}

std::string TrtllmEvents::drain() {
  std::string out = "[";
  for (const std::string& event : events_) {
    out += out.size() > 1 ? "," : "";
    out += event;
  }
  events_.clear();
  return out + "]";
}

}  // namespace stator::fake_engine
