// SPDX-License-Identifier: Apache-2.0
#include "stator/connectors/engine_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/core/assert.h"
#include "stator/core/crc32c.h"
#include "stator/core/log.h"

namespace stator::connectors {
namespace {

constexpr uint64_t kPassingBytes = uint64_t{64} << 20;
constexpr Duration kFlushPause = std::chrono::milliseconds(5);

}  // namespace

/// One operation; guarded by the cache's mutex, but for what a copy under way reads.
struct EngineCache::Operation {
  Kind kind = Kind::kGet;
  Phase phase = Phase::kLoading;
  Request request;
  TimePoint deadline;           // only with request.limit
  std::vector<uint32_t> slots;  // parallel to names; pinned, or kNone
  uint64_t stamp = 0;           // of the first block
  size_t from_host = 0;
  size_t blocks = 0;
  size_t held = 0;  // stage: pins that count
  bool late = false;
};

/// Blocks of one operation on their way up. Its pins are its own until they have come.
struct EngineCache::Loading {
  std::vector<size_t> indices;  // in the operation
  std::vector<uint32_t> slots;  // parallel
};

EngineCache::Counters::Counters(Metrics& metrics)
    : lookups(metrics.counter("stator_kv_match_hashes_requested_total",
                              "blocks that engines asked for by name", {{"tier", "host"}})),
      hits(metrics.counter("stator_kv_match_blocks_returned_total",
                           "of these, blocks in host memory or on disk", {{"tier", "host"}})),
      gets(metrics.counter("stator_kv_onboard_blocks_total",
                           "KV blocks copied into the engine's memory",
                           {{"tier", "host"}, {"result", "ok"}})),
      taken(metrics.counter("stator_kv_offload_blocks_total",
                            "KV blocks copied out of the engine's memory",
                            {{"tier", "host"}, {"result", "ok"}})),
      dropped(metrics.counter("stator_kv_queue_dropped_total",
                              "KV blocks that stayed in host memory: too many were on their way",
                              {{"lane", "host_to_lower"}, {"reason", "full"}})),
      integrity(metrics.counter("stator_kv_integrity_errors_total",
                                "blocks whose checksum was wrong: dropped, and computed again",
                                {{"tier", "host"}})),
      kvbm_d2h(metrics.counter("kvbm_offload_blocks_d2h", "blocks copied to host memory")),
      kvbm_h2d(metrics.counter("kvbm_onboard_blocks_h2d", "blocks copied from host memory")),
      kvbm_matched(metrics.counter("kvbm_matched_tokens", "tokens found in host memory or disk")) {}

Result<std::unique_ptr<EngineCache>> EngineCache::create(const EngineCacheOptions& options,
                                                         std::unique_ptr<storage::LowerTiers> lower,
                                                         Clock& clock, Metrics& metrics) {
  if (options.block_bytes == 0 || options.block_bytes > storage::BlockHeader::kPayloadMax) {
    return Error(Code::kInvalidArgument,
                 fmt::format("block_bytes is 1 to {}", storage::BlockHeader::kPayloadMax));
  }
  const uint64_t least = std::max(kPassingBytes / options.block_bytes, uint64_t{kSlotsMin});
  const uint64_t wanted = options.host_bytes / options.block_bytes;
  const auto slots = static_cast<uint32_t>(std::min<uint64_t>(
      wanted < kSlotsMin ? std::min<uint64_t>(least, 4096) : wanted, HostBlocks::kNone - 1));
  STATOR_TRY(memory::Arena arena,
             memory::Arena::create({.bytes = slots * options.block_bytes,
                                    .huge_pages = memory::HugePages::kAdviseWhenLarge,
                                    .name = "stator-kv-host"}),
             "reserving host memory for KV blocks");
  return std::unique_ptr<EngineCache>(
      new EngineCache(options, std::move(arena), slots, std::move(lower), clock, metrics));
}

EngineCache::EngineCache(const EngineCacheOptions& options, memory::Arena arena, uint32_t slots,
                         std::unique_ptr<storage::LowerTiers> lower, Clock& clock, Metrics& metrics)
    : options_(options),
      clock_(clock),
      arena_(std::move(arena)),
      host_(slots),
      counters_(metrics),
      lower_(std::move(lower)),
      pool_(std::make_unique<storage::IoPool>(std::max(options.copy_threads, 1U))) {
  if (lower_ != nullptr) {
    lower_->on_room(this,
                    [this] { pool_->post(storage::IoPool::Lane::kSave, [this] { pump(); }); });
  }
}

EngineCache::~EngineCache() {
  if (lower_ != nullptr) {
    lower_->off_room(this);
    lower_->settle();  // its jobs use it and post to the pool
  }
  pool_.reset();
}

std::span<std::byte> EngineCache::bytes_of(uint32_t slot) {
  return arena_.bytes().subspan(slot * options_.block_bytes, options_.block_bytes);
}

EngineCache::Found EngineCache::lookup(std::span<const storage::BlockName> names) {
  const MutexLock lock(mutex_);
  Found found;
  std::vector<storage::BlockName> missing;
  std::vector<bool> in_host(names.size());
  const uint64_t stamp = stamp_ += names.size();
  for (size_t i = 0; i < names.size(); ++i) {
    const uint32_t slot = host_.find(names[i]);
    in_host[i] = slot != HostBlocks::kNone;
    if (in_host[i]) {
      host_.touch(slot, stamp - i);
    } else {
      missing.push_back(names[i]);
    }
  }
  const auto known =
      lower_ == nullptr || missing.empty() ? storage::LowerTiers::Known() : lower_->known(missing);
  while (found.present < names.size()) {
    const bool on_disk = !in_host[found.present] && found.disk < known.blocks;
    if (!in_host[found.present] && !on_disk) {
      break;
    }
    ++found.present;
    ++(on_disk ? found.disk : found.host);
  }
  found.ask = found.present < names.size() && known.ask;
  counters_.lookups.add(names.size());
  counters_.hits.add(found.present);
  counters_.kvbm_matched.add(found.present * options_.block_tokens);
  return found;
}

Result<EngineCache::OperationId> EngineCache::start_get(Request request) {
  return start(Kind::kGet, std::move(request));
}
Result<EngineCache::OperationId> EngineCache::start_stage(Request request) {
  return start(Kind::kStage, std::move(request));
}
Result<EngineCache::OperationId> EngineCache::start_probe(Request request) {
  return start(Kind::kProbe, std::move(request));
}
Result<EngineCache::OperationId> EngineCache::start_put(Request request) {
  return start(Kind::kPut, std::move(request));
}

Result<EngineCache::OperationId> EngineCache::start(Kind kind, Request request) {
  const size_t count = request.names.size();
  const bool copies = kind == Kind::kGet || kind == Kind::kPut;
  if (count == 0 || count > kNamesMax ||
      (!request.tokens.empty() && request.tokens.size() != count * options_.block_tokens)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("an operation has 1 to {} blocks, and {} tokens for each or none",
                             kNamesMax, options_.block_tokens));
  }
  if (copies && (request.memory == nullptr || request.blocks.size() != count ||
                 request.memory->block_bytes() != options_.block_bytes)) {
    return Error(Code::kInvalidArgument,
                 "an operation that copies has memory and a block for each");
  }
  if (copies && !std::ranges::all_of(request.blocks,
                                     [&](uint64_t block) { return request.memory->has(block); })) {
    return Error(Code::kInvalidArgument, "a block is beyond the engine's memory");
  }
  auto op = std::make_shared<Operation>();
  op->kind = kind;
  op->request = std::move(request);
  op->slots.assign(count, HostBlocks::kNone);
  OperationId id = 0;
  {
    const MutexLock lock(mutex_);
    if (operations_.size() >= kOperationsMax) {
      return Error(Code::kOverloaded, "too many open operations: release those that are done");
    }
    if (kind == Kind::kStage && staged_ > 0 && count > pins_left()) {
      return Error(Code::kOverloaded,
                   "other stages hold host memory: ask again when some were released");
    }
    id = ++last_id_;
    op->stamp = stamp_ += count;
    op->deadline = clock_.now() + op->request.limit;
    operations_.emplace(id, op);
  }
  if (kind == Kind::kPut) {
    begin_put(op);
  } else {
    begin_fetch(op);
  }
  return id;
}

/// Pins what is in host memory and asks the tiers below for the rest.
void EngineCache::begin_fetch(const OperationRef& op) {
  std::vector<size_t> missing;
  {
    const MutexLock lock(mutex_);
    const bool pins = op->kind != Kind::kProbe;
    if (op->kind == Kind::kStage) {
      op->slots.resize(std::min(op->slots.size(), pins_left()));
      op->held = op->slots.size();  // until it is known how many there are
      held_ += op->held;
      staged_ += op->held;
    }
    for (size_t i = 0; i < op->slots.size(); ++i) {
      const uint32_t slot = host_.find(op->request.names[i]);
      if (slot == HostBlocks::kNone) {
        missing.push_back(i);
      } else if (pins) {
        host_.pin(slot);
        host_.touch(slot, op->stamp - i);
        op->slots[i] = slot;
      }
    }
    if (missing.empty() || lower_ == nullptr) {
      op->blocks = missing.empty() ? op->slots.size() : missing.front();
      op->from_host = op->blocks;
      proceed(op);
      return;
    }
  }
  ask_lower(op, std::move(missing));
}

void EngineCache::ask_lower(const OperationRef& op, std::vector<size_t> missing) {
  std::vector<storage::BlockName> names;
  for (const size_t i : missing) {
    names.push_back(op->request.names[i]);
  }
  const auto known = lower_->known(names);
  const auto go_on = [this, op](std::vector<size_t> wanted, size_t there) {
    const size_t end = there < wanted.size() ? wanted[there] : op->slots.size();
    wanted.resize(std::min(there, wanted.size()));
    {
      const MutexLock lock(mutex_);
      if (op->phase != Phase::kLoading) {
        return;
      }
      if (op->kind == Kind::kProbe || wanted.empty()) {
        op->blocks = end;
        op->from_host = end;
        proceed(op);
        return;
      }
    }
    load(op, std::move(wanted));
  };
  if (known.blocks == names.size() || !known.ask) {
    go_on(std::move(missing), known.blocks);
    return;
  }
  lower_->probe(std::move(names),
                [go_on, missing = std::move(missing)](size_t there) { go_on(missing, there); });
}

void EngineCache::load(const OperationRef& op, std::vector<size_t> missing) {
  auto loading = std::make_shared<Loading>();
  storage::LowerTiers::Load load;
  {
    const MutexLock lock(mutex_);
    if (op->phase != Phase::kLoading) {
      return;
    }
    drop_pins(clock_.now());
    for (const size_t i : missing) {
      const uint32_t slot = host_.take();
      if (slot == HostBlocks::kNone) {
        break;
      }
      host_.touch(slot, op->stamp - i);
      loading->indices.push_back(i);
      loading->slots.push_back(slot);
      load.names.push_back(op->request.names[i]);
      load.places.push_back(bytes_of(slot));
      if (!op->request.tokens.empty()) {
        const auto tokens =
            std::span(op->request.tokens).subspan(i * options_.block_tokens, options_.block_tokens);
        load.tokens.insert(load.tokens.end(), tokens.begin(), tokens.end());
      }
    }
    if (loading->slots.empty()) {
      op->blocks = missing.front();
      op->from_host = op->blocks;
      proceed(op);
      return;
    }
  }
  load.done = [this, op, loading](size_t count) { on_loaded(op, *loading, count); };
  lower_->load(std::move(load));
}

/// On a thread of the tiers.
void EngineCache::on_loaded(const OperationRef& op, const Loading& loading, size_t count) {
  std::vector<uint32_t> crcs;
  for (size_t i = 0; i < count; ++i) {
    crcs.push_back(crc32c(bytes_of(loading.slots[i])));
  }
  const MutexLock lock(mutex_);
  const bool wanted = op->phase == Phase::kLoading;
  for (size_t i = 0; i < loading.slots.size(); ++i) {
    uint32_t slot = loading.slots[i];
    const size_t index = loading.indices[i];
    const storage::BlockName& name = op->request.names[index];
    if (i >= count || !host_.publish(slot, name, crcs[i])) {
      host_.unpin(slot);
      slot = i < count ? host_.find(name) : HostBlocks::kNone;  // of another operation
      if (slot == HostBlocks::kNone) {
        continue;
      }
      host_.pin(slot);
    }
    if (wanted) {
      op->slots[index] = slot;
    } else {
      host_.unpin(slot);
    }
  }
  if (!wanted) {
    return;
  }
  const auto hole = std::ranges::find(op->slots, HostBlocks::kNone);
  op->blocks = static_cast<size_t>(hole - op->slots.begin());
  op->from_host = op->blocks;
  for (size_t i = 0; i < count; ++i) {
    op->from_host -= loading.indices[i] < op->blocks ? 1 : 0;
  }
  proceed(op);
}

/// What there is, is in host memory: the first `op->blocks`.
void EngineCache::proceed(const OperationRef& op) {
  for (size_t i = op->blocks; i < op->slots.size(); ++i) {
    if (op->slots[i] != HostBlocks::kNone) {
      host_.unpin(std::exchange(op->slots[i], HostBlocks::kNone));
    }
  }
  if (op->kind == Kind::kStage) {
    held_ -= op->held - op->blocks;
    staged_ -= op->held - op->blocks;
    op->held = op->blocks;
  }
  if (op->kind != Kind::kGet || op->blocks == 0) {
    finish(*op);
    return;
  }
  op->phase = Phase::kCopying;
  pool_->post(storage::IoPool::Lane::kLoad, [this, op] { copy_in(op); });
}

void EngineCache::copy_in(const OperationRef& op) {
  size_t good = 0;
  std::vector<uint32_t> crcs(op->blocks);
  {
    const MutexLock lock(mutex_);
    for (size_t i = 0; i < op->blocks; ++i) {
      crcs[i] = host_.crc(op->slots[i]);
    }
  }
  for (; good < op->blocks; ++good) {
    const auto bytes = bytes_of(op->slots[good]);
    if (options_.verify_host && crc32c(bytes) != crcs[good]) {
      break;
    }
    op->request.memory->scatter(op->request.blocks[good], bytes);
  }
  counters_.gets.add(good);
  counters_.kvbm_h2d.add(good);
  const MutexLock lock(mutex_);
  if (good < op->blocks) {
    counters_.integrity.add();
    log::error("kv", "a block in host memory has changed: it is dropped", {{"block", good}});
    host_.forget(op->slots[good]);
    op->blocks = good;
  }
  op->from_host = std::min(op->from_host, op->blocks);
  unpin_slots(*op);
  finish(*op);
}

void EngineCache::finish(Operation& op) {
  op.phase = Phase::kDone;
  changed_.notify_all();
}

void EngineCache::unpin_slots(Operation& op) {
  for (uint32_t& slot : op.slots) {
    if (slot != HostBlocks::kNone) {
      host_.unpin(std::exchange(slot, HostBlocks::kNone));
    }
  }
}

/// E2: the operation goes on with what is in host memory; what loads now stays there.
void EngineCache::expire(const OperationRef& op) {
  op->late = true;
  const auto hole = std::ranges::find(op->slots, HostBlocks::kNone);
  op->blocks = static_cast<size_t>(hole - op->slots.begin());
  op->from_host = op->blocks;
  proceed(op);
}

void EngineCache::begin_put(const OperationRef& op) {
  const MutexLock lock(mutex_);
  drop_pins(clock_.now());
  op->blocks = op->slots.size();
  for (size_t i = 0; i < op->slots.size(); ++i) {
    const uint32_t there = host_.find(op->request.names[i]);
    if (there != HostBlocks::kNone) {
      host_.touch(there, op->stamp - i);
      host_.pin(there);
      offer_down(there, *op, i);
      host_.unpin(there);
      continue;
    }
    const uint32_t slot = host_.take();
    if (slot == HostBlocks::kNone) {
      op->blocks = i;  // what stands behind a hole is of no use
      break;
    }
    host_.touch(slot, op->stamp - i);
    op->slots[i] = slot;
  }
  op->phase = Phase::kCopying;
  ++copying_out_;
  pool_->post(storage::IoPool::Lane::kLoad, [this, op] { copy_out(op); });
}

void EngineCache::copy_out(const OperationRef& op) {
  size_t copied = 0;
  std::vector<uint32_t> crcs(op->slots.size());
  for (size_t i = 0; i < op->blocks; ++i) {
    if (op->slots[i] != HostBlocks::kNone) {
      const auto bytes = bytes_of(op->slots[i]);
      op->request.memory->gather(op->request.blocks[i], bytes);
      crcs[i] = crc32c(bytes);
      ++copied;
    }
  }
  counters_.taken.add(copied);
  counters_.kvbm_d2h.add(copied);
  {
    const MutexLock lock(mutex_);
    for (size_t i = 0; i < op->blocks; ++i) {
      if (op->slots[i] != HostBlocks::kNone &&
          host_.publish(op->slots[i], op->request.names[i], crcs[i])) {
        offer_down(op->slots[i], *op, i);
      }
    }
    unpin_slots(*op);
    --copying_out_;
    finish(*op);
  }
  pump();
}

void EngineCache::offer_down(uint32_t slot, const Operation& op, size_t index) {
  const Request& request = op.request;
  if (lower_ == nullptr || !lower_->wants(request.names[index])) {
    return;
  }
  if (down_.size() >= host_.slots() / 2) {  // E3
    counters_.dropped.add();
    return;
  }
  Down down{.slot = slot, .name = request.names[index], .parent = {}, .tokens = {}};
  down.parent = index > 0 ? request.names[index - 1].lineage : request.parent.lineage;
  if (!request.tokens.empty()) {
    const auto tokens =
        std::span(request.tokens).subspan(index * options_.block_tokens, options_.block_tokens);
    down.tokens.assign(tokens.begin(), tokens.end());
  }
  host_.pin(slot);
  down_.push_back(std::move(down));
}

/// Sends down what waits, as long as there is room on the way. One thread at a time; who comes
/// meanwhile has it look again, so that no room is missed.
void EngineCache::pump() {
  {
    const MutexLock lock(mutex_);
    pump_again_ = pumping_;
    if (pumping_) {
      return;
    }
    pumping_ = true;
  }
  while (send_one_down()) {
  }
}

/// False: nothing waits, or there is no room, and this thread does not pump any more.
bool EngineCache::send_one_down() {
  Down down;
  {
    const MutexLock lock(mutex_);
    if (down_.empty()) {
      pumping_ = false;
      changed_.notify_all();
      return false;
    }
    down = std::move(down_.front());
    down_.pop_front();
  }
  const bool wanted = lower_->wants(down.name);
  const bool taken = wanted && lower_->save({.name = down.name,
                                             .parent = down.parent,
                                             .tokens = down.tokens,
                                             .payload = bytes_of(down.slot)});
  const MutexLock lock(mutex_);
  if (!wanted || taken) {
    host_.unpin(down.slot);
    return true;
  }
  down_.push_front(std::move(down));
  pumping_ = std::exchange(pump_again_, false);
  return pumping_;
}

size_t EngineCache::pins_left() const {
  const size_t most = host_.slots() / 4;
  return most - std::min(held_, most);
}

EngineCache::Outcome EngineCache::outcome(const Operation& op) const {
  return {.done = op.phase == Phase::kDone,
          .late = op.late,
          .blocks = op.blocks,
          .from_host = op.from_host};
}

Result<EngineCache::Outcome> EngineCache::poll(OperationId id) {
  return wait(id, Duration::zero());
}

Result<EngineCache::Outcome> EngineCache::wait(OperationId id, Duration at_most) {
  MutexLock lock(mutex_);
  const auto found = operations_.find(id);
  if (found == operations_.end()) {
    return Error(Code::kNotFound, "no such operation, or it was released");
  }
  const OperationRef op = found->second;
  const TimePoint until = clock_.now() + at_most;
  while (op->phase != Phase::kDone) {
    const TimePoint now = clock_.now();
    const bool limited = op->phase == Phase::kLoading && op->request.limit > Duration::zero();
    if (limited && now >= op->deadline) {
      expire(op);
      continue;
    }
    if (now >= until) {
      break;
    }
    changed_.wait_for(lock, (limited ? std::min(until, op->deadline) : until) - now);
  }
  return outcome(*op);
}

bool EngineCache::release(OperationId id) {
  const MutexLock lock(mutex_);
  const auto found = operations_.find(id);
  if (found == operations_.end()) {
    return true;
  }
  Operation& op = *found->second;
  if (op.phase == Phase::kCopying) {
    return false;
  }
  op.phase = Phase::kDone;  // what still loads stays in host memory
  unpin_slots(op);
  held_ -= op.held;
  staged_ -= op.held;
  operations_.erase(found);
  return true;
}

Result<EngineCache::Pinned> EngineCache::pin(std::span<const storage::BlockName> names,
                                             Duration ttl) {
  const MutexLock lock(mutex_);
  const TimePoint now = clock_.now();
  drop_pins(now);
  if (names.size() > pins_left()) {
    return Error(Code::kOverloaded,
                 fmt::format("{} more blocks of host memory can be pinned; unpin others or give "
                             "host memory more bytes",
                             pins_left()));
  }
  Pins pins{.slots = {}, .until = now + ttl};
  for (const storage::BlockName& name : names) {
    const uint32_t slot = host_.find(name);
    if (slot == HostBlocks::kNone) {
      break;
    }
    host_.pin(slot);
    pins.slots.push_back(slot);
  }
  held_ += pins.slots.size();
  const Pinned out{.id = ++last_id_, .blocks = pins.slots.size()};
  pins_.emplace(out.id, std::move(pins));
  return out;
}

bool EngineCache::unpin(uint64_t id) {
  const MutexLock lock(mutex_);
  const auto found = pins_.find(id);
  if (found == pins_.end()) {
    return false;
  }
  for (const uint32_t slot : found->second.slots) {
    host_.unpin(slot);
  }
  held_ -= found->second.slots.size();
  pins_.erase(found);
  return true;
}

void EngineCache::drop_pins(TimePoint now) {
  for (auto it = pins_.begin(); it != pins_.end();) {
    if (it->second.until > now) {
      ++it;
      continue;
    }
    for (const uint32_t slot : it->second.slots) {
      host_.unpin(slot);
    }
    held_ -= it->second.slots.size();
    pins_.erase(it++);
  }
}

Status EngineCache::flush(Duration at_most) {
  const TimePoint until = clock_.now() + at_most;
  while (true) {
    pump();
    MutexLock lock(mutex_);
    if (copying_out_ == 0 && down_.empty() && !pumping_ && (lower_ == nullptr || lower_->idle())) {
      return {};
    }
    if (clock_.now() >= until) {
      return Error(Code::kDeadline,
                   fmt::format("{} blocks still wait for their way down", down_.size()));
    }
    changed_.wait_for(lock, kFlushPause);
  }
}

EngineCache::Stats EngineCache::stats() const {
  const MutexLock lock(mutex_);
  const storage::DiskTier* const disk = lower_ == nullptr ? nullptr : lower_->disk();
  return {.host_slots = host_.slots(),
          .host_blocks = host_.stored(),
          .host_pinned = host_.pinned(),
          .host_evictions = host_.evicted_total(),
          .disk_slots = disk == nullptr ? 0 : disk->slots(),
          .disk_blocks = disk == nullptr ? 0 : disk->stored(),
          .waiting_down = down_.size(),
          .dropped_down = counters_.dropped.value(),
          .lookup_blocks = counters_.lookups.value(),
          .hit_blocks = counters_.hits.value(),
          .get_blocks = counters_.gets.value(),
          .put_blocks = counters_.taken.value(),
          .loaded_blocks = lower_ == nullptr ? 0 : lower_->loaded_total(),
          .integrity_errors = counters_.integrity.value(),
          .operations = operations_.size()};
}

}  // namespace stator::connectors
