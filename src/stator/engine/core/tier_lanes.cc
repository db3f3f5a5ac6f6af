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
  inference::EngineRequest request;
  std::unique_ptr<guided::Guide> guide;
  blocks::BlockHasher hasher;
  std::string owner;
  std::vector<storage::BlockName> names;
  std::vector<uint32_t> slots;  // of the host tier, for blocks `begin` and later
  size_t begin = 0;
  TimePoint deadline;
  TimePoint load_began;
  std::shared_ptr<Fetch> after;  // whose load has what this one lacks
  uint64_t epoch = 0;
  bool takes = false;    // from another engine
  bool waits = true;     // its request is still here
  bool probing = false;  // the stores are being asked how much they have
  bool over = false;     // nothing is under way for it
  std::atomic<int64_t> reported{-1};
};

TierLanes::TierLanes(Sources sources, Scheduler& scheduler, ModelRunner& runner, Options options,
                     std::function<void()> wake, Metrics& metrics)
    : sources_(sources),
      scheduler_(scheduler),
      runner_(runner),
      options_(options),
      wake_(std::move(wake)) {
  if (sources_.lower != nullptr) {
    named_.resize(scheduler.pool().total_blocks());
    scheduler_.record_registrations();
    sources_.lower->on_room(this, wake_);
    follow_changes();
  }
  const MetricLabels labels = {{"engine", std::string(options.engine_name)}};
  loaded_tokens_ = metrics.counter("stator_kv_onboarded_tokens_total",
                                   "prompt tokens loaded from tiers below host memory", labels);
  late_ = metrics.counter("stator_kv_onboard_late_total",
                          "requests that went on before their blocks had come", labels);
  shared_loads_ = metrics.counter("stator_kv_shared_loads_total",
                                  "requests that waited for the load of another one", labels);
  declined_ = metrics.counter("stator_kv_loads_declined_total",
                              "loads left out because computing is measured to be sooner", labels);
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
  const uint32_t block_size = options_.block_tokens;
  const bool takes = ready.request.phase == inference::Phase::kDecode && sources_.taker != nullptr;
  if (!takes && (ready.request.tokens.size() <= block_size || sources_.lower == nullptr)) {
    return false;
  }
  auto fetch = std::make_shared<Fetch>(ready, block_size);
  fetch->owner = owner_of(fetch->request, options_.adapters, options_.long_prompts);
  fetch->hasher.append(fetch->request.tokens);
  // The last token is always computed.
  const size_t matchable = (fetch->request.tokens.size() - 1) / block_size;
  const kv::SequenceBlocks blocks = fetch->blocks(matchable);
  fetch->names = storage::name_blocks(options_.space, blocks);
  fetch->begin = scheduler_.cached_blocks(blocks);
  fetch->deadline = now + (takes ? options_.handoff_timeout : options_.load_timeout);
  fetch->epoch = epoch_;
  fetch->takes = takes;
  storage::LowerTiers::Known known;
  if (takes) {
    begin_take(fetch);
  } else if (fetch->begin < matchable) {
    fetch->after = find_flight(*fetch);
    known = fetch->after != nullptr ? known : sources_.lower->known(fetch->names);
  }
  shared_loads_.add(fetch->after != nullptr ? 1 : 0);
  if (known.ask) {
    fetch->probing = true;
    begin_work();
    const auto from = static_cast<ptrdiff_t>(fetch->begin);
    sources_.lower->probe({fetch->names.begin() + from, fetch->names.end()},
                          [this, fetch](size_t count) { report(*fetch, count); });
  } else if (known.blocks > fetch->begin) {
    begin_load(fetch, known.blocks - fetch->begin, now);
  }
  if (!fetch->probing && fetch->slots.empty() && fetch->after == nullptr) {
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
void TierLanes::begin_load(const std::shared_ptr<Fetch>& of, size_t known, TimePoint now) {
  Fetch& fetch = *of;
  if (!costs_.worth_loading(known, options_.block_tokens)) {
    declined_.add();
    return;
  }
  fetch.load_began = now;
  fetch.slots =
      scheduler_.reserve_host_slots(fetch.blocks(fetch.begin), static_cast<uint32_t>(known));
  if (fetch.slots.empty()) {
    return;
  }
  const uint32_t block_size = options_.block_tokens;
  const auto first = static_cast<ptrdiff_t>(fetch.begin);
  const auto count = static_cast<ptrdiff_t>(fetch.slots.size());
  const auto tokens = fetch.request.tokens.begin() + first * block_size;
  storage::LowerTiers::Load load;
  load.names.assign(fetch.names.begin() + first, fetch.names.begin() + first + count);
  load.tokens.assign(tokens, tokens + count * block_size);
  for (const uint32_t slot : fetch.slots) {
    load.places.push_back(runner_.host_block(slot));
  }
  begin_work();
  load.done = [this, of](size_t loaded) { report(*of, loaded); };
  sources_.lower->load(std::move(load));
}

/// Takes the prompt over from the engine that computes it. What is here already is not fetched, but
/// its giver hears of that.
void TierLanes::begin_take(const std::shared_ptr<Fetch>& of) {
  Fetch& fetch = *of;
  const auto begin = static_cast<ptrdiff_t>(fetch.begin);
  fetch.slots = scheduler_.reserve_host_slots(
      fetch.blocks(fetch.begin), static_cast<uint32_t>(fetch.names.size() - fetch.begin));
  const auto count = static_cast<ptrdiff_t>(fetch.slots.size());
  handoff::Taker::Want want;
  want.handoff = std::move(fetch.request.handoff);
  want.names.assign(fetch.names.begin() + begin, fetch.names.begin() + begin + count);
  want.begin = fetch.begin;
  for (const uint32_t slot : fetch.slots) {
    want.places.push_back(runner_.host_block(slot));
  }
  if (fetch.slots.empty()) {
    want.done = [](size_t /*taken*/) {};  // nobody waits
  } else {
    begin_work();
    want.done = [this, of](size_t taken) { report(*of, taken); };
  }
  sources_.taker->take(std::move(want));
}

/// Something is under way whose end report() tells.
void TierLanes::begin_work() {
  const MutexLock lock(mutex_);
  ++under_way_;
}

void TierLanes::report(Fetch& fetch, size_t count) {
  const MutexLock lock(mutex_);
  fetch.reported = static_cast<int64_t>(count);
  --under_way_;
  landed_.notify_all();
  wake_();
}

/// A fetch under way that brings the first block `wanted` lacks.
std::shared_ptr<TierLanes::Fetch> TierLanes::find_flight(const Fetch& wanted) const {
  for (const auto& flight : fetches_) {
    const size_t at = wanted.begin;
    const size_t end =
        flight->probing ? flight->names.size() : flight->begin + flight->slots.size();
    if (!flight->over && !flight->takes && flight->after == nullptr && flight->epoch == epoch_ &&
        flight->begin <= at && at < end && flight->names[at] == wanted.names[at]) {
      return flight;
    }
  }
  return nullptr;
}

/// The load that a fetch waited for is over: it has what it needs, or loads the rest.
void TierLanes::follow_up(const std::shared_ptr<Fetch>& of, TimePoint now) {
  Fetch& fetch = *of;
  fetch.after = nullptr;
  if (fetch.waits && fetch.epoch == epoch_) {
    fetch.begin = scheduler_.cached_blocks(fetch.blocks(fetch.names.size()));
    const storage::LowerTiers::Known known = sources_.lower->known(fetch.names);
    if (known.blocks > fetch.begin) {
      begin_load(of, known.blocks - fetch.begin, now);
    }
  }
  fetch.over = fetch.slots.empty();
}

/// So many of a fetch's first blocks are in their slots.
void TierLanes::land(Fetch& fetch, size_t loaded, TimePoint now) {
  const std::span<const uint32_t> slots = fetch.slots;
  if (fetch.epoch == epoch_) {
    const size_t adopted = scheduler_.adopt_host_blocks(fetch.blocks(fetch.begin + loaded),
                                                        fetch.begin, slots.first(loaded));
    loaded_tokens_.add(adopted * fetch.hasher.block_size());
    scheduler_.give_back_host_slots(slots.subspan(loaded));
  } else {
    scheduler_.give_back_host_slots(slots);
  }
  if (!fetch.takes) {
    costs_.saw_load(loaded, now - fetch.load_began);
  }
  fetch.over = true;
}

std::vector<TierLanes::Parked> TierLanes::collect(TimePoint now) {
  std::vector<Parked> ready;
  for (const auto& fetch : fetches_) {
    const int64_t reported = fetch->reported.exchange(-1);
    if (reported >= 0 && std::exchange(fetch->probing, false)) {
      if (reported > 0 && fetch->waits && fetch->epoch == epoch_) {
        begin_load(fetch, static_cast<size_t>(reported), now);
      }
      fetch->over = fetch->slots.empty();
    } else if (reported >= 0) {
      land(*fetch, static_cast<size_t>(reported), now);
    } else if (fetch->after != nullptr && fetch->after->over) {
      follow_up(fetch, now);
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

bool TierLanes::cancel(SessionId session, inference::RequestKey key) {
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
  if (sources_.lower != nullptr) {
    sources_.lower->changes().unsubscribe(this);
    {
      const MutexLock lock(mutex_);
      changes_.clear();
    }
    follow_changes();
  }
}

void TierLanes::follow_changes() {
  sources_.lower->changes().subscribe(this, [this](std::span<const storage::TierChange> changes) {
    const MutexLock lock(mutex_);
    changes_.insert(changes_.end(), changes.begin(), changes.end());
    wake_();
  });
}

std::vector<kv::KvEvent> TierLanes::take_tier_events() {
  std::vector<storage::TierChange> changes;
  {
    const MutexLock lock(mutex_);
    changes.swap(changes_);
  }
  std::vector<kv::KvEvent> events;
  for (const storage::TierChange& change : changes) {
    const blocks::ExternalHash name(change.sequence.value());
    kv::KvEvent* const last =
        events.empty() || events.back().tier != change.tier ? nullptr : &events.back();
    if (!change.stored) {
      auto* const run = last == nullptr ? nullptr : std::get_if<kv::BlocksRemoved>(&last->data);
      if (run != nullptr) {
        run->blocks.push_back(name);
      } else {
        events.push_back({.tier = change.tier, .data = kv::BlocksRemoved{.blocks = {name}}});
      }
      continue;
    }
    std::optional<blocks::ExternalHash> parent;
    if (change.parent) {
      parent = blocks::ExternalHash(change.parent->value());
    }
    auto* const run = last == nullptr ? nullptr : std::get_if<kv::BlocksStored>(&last->data);
    if (run != nullptr && parent && run->blocks.back().external == *parent) {
      run->blocks.push_back({.external = name, .local = change.local});
    } else {
      events.push_back(
          {.tier = change.tier,
           .data = kv::BlocksStored{.parent = parent,
                                    .blocks = {{.external = name, .local = change.local}}}});
    }
  }
  return events;
}

const storage::BlockName* TierLanes::name(const kv::BlockPool::Registration& block) {
  const auto identity = scheduler_.pool().find_content(block.block, block.content);
  if (!identity || identity->tokens.empty()) {
    return nullptr;
  }
  Named& named = named_[block.block.value()];
  if (!block.parent) {
    named.name.check =
        storage::next_check(storage::root_check(options_.space, identity->owner), identity->tokens);
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
  if (sources_.lower == nullptr) {
    return;
  }
  for (const kv::BlockPool::Registration& block : scheduler_.take_registrations()) {
    const storage::BlockName* const known = name(block);
    if (known == nullptr || !sources_.lower->wants(*known)) {
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
    } else if (sources_.lower->wants(named.name)) {
      const auto parent = scheduler_.pool().parent(block);
      if (!sources_.lower->save(
              {.name = named.name,
               .parent = parent ? named_[parent->value()].name.lineage : kv::LineageHash(),
               .tokens = identity->tokens,
               .payload = runner_.device_block(block),
               .local = identity->local})) {
        return;  // on_room() wakes the engine
      }
    }
    offered_.pop_front();
  }
}

void TierLanes::close() {
  if (sources_.lower != nullptr) {
    sources_.lower->off_room(this);
    sources_.lower->changes().unsubscribe(this);
  }
  MutexLock lock(mutex_);
  while (under_way_ > 0) {
    landed_.wait(lock);
  }
}

}  // namespace stator::engine
