// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/tier_lanes.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <utility>

#include "stator/blocks/block_hash.h"
#include "stator/core/assert.h"
#include "stator/kv/block_identity.h"

namespace stator::engine {

/// One request's way up.
struct TierLanes::Fetch {
  Fetch(Parked& ready, uint32_t block_size)
      : session(ready.session),
        request(std::move(ready.request)),
        guide(std::move(ready.guide)),
        hasher(block_size, blocks::hash_seed(request.lora_name, request.cache_salt)) {}

  kv::SequenceBlocks blocks(size_t count) const {
    return {.sequences = hasher.sequences().first(count),
            .locals = hasher.locals().first(count),
            .tokens = request.tokens,
            .block_size = hasher.block_size(),
            .owner = owner};
  }

  SessionId session;
  EngineRequest request;
  std::unique_ptr<guided::Guide> guide;
  blocks::BlockHasher hasher;
  std::string owner;
  std::vector<storage::BlockName> names;
  std::vector<uint32_t> slots;  // of the host tier, for blocks `begin` and later
  size_t begin = 0;
  TimePoint deadline;
  uint64_t epoch = 0;
  bool waits = true;     // its request is still here
  bool probing = false;  // the stores are being asked how much they have
  bool over = false;     // nothing is under way for it
  std::atomic<int64_t> reported{-1};
};

TierLanes::TierLanes(std::shared_ptr<storage::LowerTiers> lower, Scheduler& scheduler,
                     ModelRunner& runner, Options options, std::function<void()> wake,
                     Metrics& metrics)
    : lower_(std::move(lower)),
      scheduler_(scheduler),
      runner_(runner),
      load_timeout_(options.load_timeout),
      adapters_(options.adapters),
      wake_(std::move(wake)),
      named_(scheduler.pool().total_blocks()) {
  scheduler_.record_registrations();
  lower_->on_room(this, wake_);
  const MetricLabels labels = {{"engine", std::string(options.engine_name)}};
  loaded_tokens_ = metrics.counter("stator_kv_onboarded_tokens_total",
                                   "prompt tokens loaded from tiers below host memory", labels);
  late_ = metrics.counter("stator_kv_onboard_late_total",
                          "requests that went on before their blocks had come", labels);
  skipped_ = metrics.counter("stator_kv_queue_dropped_total",
                             "blocks not offered to lower tiers, by reason",
                             {{"lane", "offload"}, {"reason", "evicted"}});
  parked_gauge_ = metrics.gauge("stator_kv_onboarding_requests",
                                "requests that wait for blocks of lower tiers", labels);
}

TierLanes::~TierLanes() {
  close();
}

bool TierLanes::park(Parked& ready, TimePoint now) {
  const uint32_t block_size = lower_->options().block_tokens;
  if (ready.request.tokens.size() <= block_size) {
    return false;
  }
  auto fetch = std::make_shared<Fetch>(ready, block_size);
  fetch->owner = owner_of(fetch->request, adapters_);
  fetch->hasher.append(fetch->request.tokens);
  // The last token is always computed.
  const size_t matchable = (fetch->request.tokens.size() - 1) / block_size;
  const kv::SequenceBlocks blocks = fetch->blocks(matchable);
  fetch->names = storage::name_blocks(lower_->options().space, blocks);
  const storage::LowerTiers::Known known = lower_->known(fetch->names);
  fetch->begin = scheduler_.cached_blocks(blocks);
  fetch->deadline = now + load_timeout_;
  fetch->epoch = epoch_;
  if (known.ask && fetch->begin < matchable) {
    fetch->probing = true;
    {
      const MutexLock lock(mutex_);
      ++under_way_;
    }
    const auto from = static_cast<ptrdiff_t>(fetch->begin);
    lower_->probe({fetch->names.begin() + from, fetch->names.end()},
                  [this, fetch](size_t count) { report(*fetch, count); });
  } else if (known.blocks > fetch->begin) {
    begin_load(fetch, known.blocks - fetch->begin);
  }
  if (!fetch->probing && fetch->slots.empty()) {
    ready.request = std::move(fetch->request);
    ready.guide = std::move(fetch->guide);
    return false;
  }
  fetches_.push_back(std::move(fetch));
  ++parked_;
  parked_gauge_.add(1);
  return true;
}

/// Reserves host memory for so many blocks from `begin` on and asks for them.
void TierLanes::begin_load(const std::shared_ptr<Fetch>& of, size_t known) {
  Fetch& fetch = *of;
  fetch.slots = scheduler_.reserve_host_slots(static_cast<uint32_t>(known));
  if (fetch.slots.empty()) {
    return;
  }
  const uint32_t block_size = lower_->options().block_tokens;
  const auto first = static_cast<ptrdiff_t>(fetch.begin);
  const auto count = static_cast<ptrdiff_t>(fetch.slots.size());
  const auto tokens = fetch.request.tokens.begin() + first * block_size;
  storage::LowerTiers::Load load;
  load.names.assign(fetch.names.begin() + first, fetch.names.begin() + first + count);
  load.tokens.assign(tokens, tokens + count * block_size);
  for (const uint32_t slot : fetch.slots) {
    load.places.push_back(runner_.host_block(slot));
  }
  {
    const MutexLock lock(mutex_);
    ++under_way_;
  }
  load.done = [this, of](size_t loaded) { report(*of, loaded); };
  lower_->load(std::move(load));
}

void TierLanes::report(Fetch& fetch, size_t count) {
  const MutexLock lock(mutex_);
  fetch.reported = static_cast<int64_t>(count);
  --under_way_;
  landed_.notify_all();
  wake_();
}

std::vector<TierLanes::Parked> TierLanes::collect(TimePoint now) {
  std::vector<Parked> ready;
  for (const auto& fetch : fetches_) {
    const int64_t reported = fetch->reported.exchange(-1);
    if (reported >= 0 && std::exchange(fetch->probing, false)) {
      if (reported > 0 && fetch->waits && fetch->epoch == epoch_) {
        begin_load(fetch, static_cast<size_t>(reported));
      }
      fetch->over = fetch->slots.empty();
    } else if (reported >= 0) {
      const std::span<const uint32_t> slots = fetch->slots;
      if (fetch->epoch == epoch_) {
        const auto loaded = static_cast<size_t>(reported);
        const size_t adopted = scheduler_.adopt_host_blocks(fetch->blocks(fetch->begin + loaded),
                                                            fetch->begin, slots.first(loaded));
        loaded_tokens_.add(adopted * fetch->hasher.block_size());
        scheduler_.give_back_host_slots(slots.subspan(loaded));
      } else {
        scheduler_.give_back_host_slots(slots);
      }
      fetch->over = true;
    }
    const bool late = !fetch->over && now >= fetch->deadline;
    if (fetch->waits && (fetch->over || late)) {
      late_.add(late ? 1 : 0);
      fetch->waits = false;
      --parked_;
      parked_gauge_.add(-1);
      if (late) {  // its tokens are still needed when the blocks land
        ready.push_back({fetch->session, fetch->request, std::move(fetch->guide)});
      } else {
        ready.push_back({fetch->session, std::move(fetch->request), std::move(fetch->guide)});
      }
    }
  }
  std::erase_if(fetches_, [](const auto& fetch) { return fetch->over && !fetch->waits; });
  return ready;
}

TimePoint TierLanes::next_deadline() const {
  TimePoint next = TimePoint::max();
  for (const auto& fetch : fetches_) {
    next = fetch->waits ? std::min(next, fetch->deadline) : next;
  }
  return next;
}

bool TierLanes::cancel(SessionId session, RequestKey key) {
  for (const auto& fetch : fetches_) {
    if (fetch->waits && fetch->session == session && fetch->request.key == key) {
      fetch->waits = false;
      --parked_;
      parked_gauge_.add(-1);
      return true;
    }
  }
  return false;
}

void TierLanes::cancel_session(SessionId session) {
  for (const auto& fetch : fetches_) {
    if (fetch->waits && fetch->session == session) {
      fetch->waits = false;
      --parked_;
      parked_gauge_.add(-1);
    }
  }
}

std::vector<TierLanes::Parked> TierLanes::take_all() {
  std::vector<Parked> out;
  for (const auto& fetch : fetches_) {
    if (std::exchange(fetch->waits, false)) {
      out.push_back({fetch->session, std::move(fetch->request), std::move(fetch->guide)});
      --parked_;
      parked_gauge_.add(-1);
    }
  }
  return out;
}

void TierLanes::forget() {
  ++epoch_;
  offered_.clear();
}

const storage::BlockName* TierLanes::name(const kv::BlockPool::Registration& block) {
  const auto identity = scheduler_.pool().find_content(block.block, block.content);
  if (!identity || identity->tokens.empty()) {
    return nullptr;
  }
  Named& named = named_[block.block.value()];
  if (!block.parent) {
    named.name.check = storage::next_check(
        storage::root_check(lower_->options().space, identity->owner), identity->tokens);
    named.name.lineage = kv::LineageHash::root(identity->local);
  } else {
    const Named& parent = named_[block.parent->value()];
    const auto lineage = parent.name.lineage.extend(identity->local);
    if (parent.content != block.parent_content || !lineage) {
      return nullptr;
    }
    named.name = {.lineage = *lineage,
                  .check = storage::next_check(parent.name.check, identity->tokens)};
  }
  named.content = block.content;
  return &named.name;
}

void TierLanes::offload() {
  for (const kv::BlockPool::Registration& block : scheduler_.take_registrations()) {
    const storage::BlockName* const known = name(block);
    if (known == nullptr || !lower_->wants(*known)) {
      continue;
    }
    if (offered_.size() >= kOfferedMax) {
      offered_.pop_front();
      skipped_.add();
    }
    offered_.push_back({.block = block.block, .content = block.content});
  }
  while (!offered_.empty()) {
    const auto [block, content] = offered_.front();
    const auto identity = scheduler_.pool().find_content(block, content);
    const Named& named = named_[block.value()];
    if (!identity || named.content != content) {
      skipped_.add();  // L2
    } else if (lower_->wants(named.name)) {
      const auto parent = scheduler_.pool().parent(block);
      if (!lower_->save(
              {.name = named.name,
               .parent = parent ? named_[parent->value()].name.lineage : kv::LineageHash(),
               .tokens = identity->tokens,
               .payload = runner_.device_block(block)})) {
        return;  // on_room() wakes the engine
      }
    }
    offered_.pop_front();
  }
}

void TierLanes::close() {
  lower_->off_room(this);
  MutexLock lock(mutex_);
  while (under_way_ > 0) {
    landed_.wait(lock);
  }
}

}  // namespace stator::engine
