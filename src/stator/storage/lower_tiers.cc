// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/lower_tiers.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "stator/core/assert.h"
#include "stator/core/log.h"

namespace stator::storage {
namespace {

constexpr double kLoadSeconds[] = {1e-4, 3e-4, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3};
constexpr size_t kSharedNamesMax = size_t{1} << 20;
constexpr size_t kHeadersAtOnce = 256;

}  // namespace

/// One block on its way down.
struct LowerTiers::Saving {
  explicit Saving(uint64_t record_bytes) : record(record_bytes) {}
  BlockName name;
  kv::LineageHash parent;
  std::vector<TokenId> tokens;
  blocks::LocalHash local;
  TimePoint asked;
  AlignedBuffer record;  // header, payload
};

/// One load under way: its blocks report here.
struct LowerTiers::Loading {
  Load load;
  TimePoint begin;
  std::atomic<size_t> left{0};
  std::vector<std::atomic<bool>> ok;
};

LowerTiers::LowerTiers(const LowerTiersOptions& options, std::unique_ptr<DiskTier> disk,
                       std::vector<std::unique_ptr<BlockStore>> stores, Clock& clock,
                       Metrics& metrics)
    : options_(options),
      clock_(clock),
      disk_(std::move(disk)),
      bounces_max_(
          std::max<size_t>(2, options.bounce_bytes / (options.block_bytes + BlockHeader::kBytes))),
      load_seconds_(metrics.histogram("stator_kv_onboard_wait_seconds",
                                      "from asking for the blocks of a prompt to having them",
                                      kLoadSeconds)),
      queued_(metrics.gauge("stator_kv_queue_depth", "KV blocks on their way down",
                            {{"lane", "offload"}})) {
  std::vector<std::string_view> rows;
  if (disk_ != nullptr) {
    disk_flow_ = std::make_unique<TierFlow>(metrics, "disk", options.saves_from);
    disk_flow_->set_enabled(disk_->enabled());
    rows.emplace_back("disk");
    disk_->on_removed(
        [this](const BlockName& name) { changes_.removed(kv::StorageTier::kDisk, name.lineage); });
  }
  for (std::unique_ptr<BlockStore>& store : stores) {
    auto made = std::make_unique<Store>();
    made->is_object = store->tier() == "object";
    made->flow = std::make_unique<TierFlow>(metrics, store->tier(), options.saves_from);
    made->flow->set_enabled(true);
    made->store = std::move(store);
    rows.push_back(made->store->tier());
    stores_.push_back(std::move(made));
  }
  hits_ = std::make_unique<HitWindow>(metrics, rows);
  pool_ = std::make_unique<IoPool>(options.io_threads);
  if (disk_ != nullptr && disk_->recovered() > 0) {
    tell_recovered(disk_->newest(options.recovered_told_max), 0);
  }
}

LowerTiers::~LowerTiers() {
  stopping_ = true;
  pool_.reset();
}

/// Blocks that were on disk at the start, a few at a time, parents first. Their tokens are in their
/// headers; those of an adapter or a cache salt hash otherwise, and are left out.
void LowerTiers::tell_recovered(std::vector<JournalRecord> records, size_t begin) {
  if (begin == 0) {
    std::ranges::sort(records, {},
                      [](const JournalRecord& record) { return record.name.lineage.position(); });
  }
  pool_->post(IoPool::Lane::kSave, [this, records = std::move(records), begin]() mutable {
    const size_t end = std::min(begin + kHeadersAtOnce, records.size());
    const uint64_t seed = blocks::hash_seed("", "");
    for (size_t i = begin; i < end && !stopping_; ++i) {
      const auto header = disk_->read_header(records[i].name);
      if (header && !header->tokens.empty()) {
        changes_.stored(kv::StorageTier::kDisk, records[i].name.lineage, records[i].parent,
                        blocks::hash_block(header->tokens, seed));
        if (!disk_->contains(records[i].name)) {
          changes_.removed(kv::StorageTier::kDisk, records[i].name.lineage);
        }
      }
    }
    if (end < records.size() && !stopping_) {
      tell_recovered(std::move(records), end);
    }
  });
}

LowerTiers::Known LowerTiers::known(std::span<const BlockName> names) {
  Known known;
  if (disk_ != nullptr) {
    known.blocks = disk_->match(names);
  }
  hits_->asked(names.size());
  known.ask = known.blocks < names.size() &&
              std::ranges::any_of(stores_, [this](const auto& store) { return open(*store); });
  return known;
}

void LowerTiers::probe(std::vector<BlockName> names, std::function<void(size_t)> done) {
  pool_->post(IoPool::Lane::kLoad, [this, names = std::move(names), done = std::move(done)] {
    size_t found = disk_ != nullptr ? disk_->match(names) : 0;
    for (const auto& store : stores_) {
      if (found == names.size() || !open(*store)) {
        continue;
      }
      const auto more = store->store->count(std::span(names).subspan(found));
      judge(*store, more ? Status() : Status(more.error().clone()));
      found += more ? *more : 0;
    }
    done(found);
  });
}

void LowerTiers::load(Load load) {
  auto loading = std::make_shared<Loading>();
  loading->load = std::move(load);
  loading->begin = clock_.now();
  const size_t count = loading->load.names.size();
  loading->ok = std::vector<std::atomic<bool>>(count);
  STATOR_ASSERT(count > 0 && loading->load.places.size() == count &&
                    (loading->load.tokens.empty() ||
                     loading->load.tokens.size() == count * options_.block_tokens),
                "a load has places for all its blocks, and tokens for all or none");
  const size_t share = (count + options_.io_threads - 1) / options_.io_threads;
  const size_t batch = disk_ != nullptr && disk_->batches() ? std::min(share, kBatchMax) : 1;
  loading->left = (count + batch - 1) / batch;
  for (size_t begin = 0; begin < count; begin += batch) {
    pool_->post(IoPool::Lane::kLoad, [this, loading, begin, end = std::min(begin + batch, count)] {
      load_some(*loading, begin, end);
      if (--loading->left > 0) {
        return;
      }
      const Load& of = loading->load;
      const auto missing = std::ranges::find_if(loading->ok, [](const auto& ok) { return !ok; });
      load_seconds_.observe(std::chrono::duration<double>(clock_.now() - loading->begin).count());
      of.done(static_cast<size_t>(missing - loading->ok.begin()));
    });
  }
}

/// Blocks `begin` to `end`: all from the disk at once, then what it lacks from the stores.
void LowerTiers::load_some(Loading& loading, size_t begin, size_t end) {
  const Load& of = loading.load;
  const size_t known = of.tokens.empty() ? 0 : options_.block_tokens;
  std::vector<DiskTier::Read> reads;
  for (size_t i = begin; i < end; ++i) {
    reads.push_back({.name = of.names[i],
                     .tokens = std::span(of.tokens).subspan(i * known, known),
                     .payload = of.places[i],
                     .outcome = Error(Code::kNotFound, "no tier has the block")});
  }
  if (disk_ != nullptr) {
    const TimePoint began = clock_.now();
    disk_->read_all(reads);
    disk_flow_->read_took(clock_.now() - began);
    hits_->found(0, static_cast<size_t>(std::ranges::count_if(
                        reads, [](const DiskTier::Read& one) { return one.outcome.has_value(); })));
  }
  for (size_t i = begin; i < end; ++i) {
    const DiskTier::Read& one = reads[i - begin];
    if (one.outcome) {
      disk_flow_->loaded(options_.block_bytes);
    }
    loading.ok[i] = one.outcome || load_elsewhere(one.name, one.tokens, one.payload);
    loaded_ += loading.ok[i] ? 1 : 0;
  }
}

Status LowerTiers::load_elsewhere(const BlockName& name, std::span<const TokenId> tokens,
                                  std::span<std::byte> place) {
  Status outcome = Error(Code::kNotFound, "no tier has the block");
  for (size_t i = 0; !outcome && i < stores_.size(); ++i) {
    if (open(*stores_[i])) {
      outcome = load_from(*stores_[i], name, tokens, place);
      hits_->found(i + (disk_ != nullptr ? 1 : 0), outcome ? 1 : 0);
    }
  }
  return outcome;
}

Status LowerTiers::load_from(Store& store, const BlockName& name, std::span<const TokenId> tokens,
                             std::span<std::byte> place) {
  const AlignedBuffer record(BlockHeader::kBytes + options_.block_bytes);
  const TimePoint began = clock_.now();
  Status got = store.store->get(name, record.bytes());
  store.flow->read_took(clock_.now() - began);
  if (got) {
    const auto header = record.bytes().first(BlockHeader::kBytes);
    const auto payload = record.bytes().subspan(BlockHeader::kBytes);
    auto checked = check_header(header, {.space = options_.space,
                                         .name = name,
                                         .payload_bytes = options_.block_bytes,
                                         .tokens = tokens});
    got = checked ? check_payload(*checked, payload) : Status(std::move(checked.error()));
    if (got) {
      std::ranges::copy(payload, place.begin());
      store.flow->loaded(options_.block_bytes);
    }
  }
  const bool missing = !got && got.error().code() == Code::kNotFound;
  if (!got && !missing) {
    store.flow->not_given();
  }
  if (missing && store.is_object) {
    changes_.removed(kv::StorageTier::kExternal, name.lineage);
  }
  judge(store, got);
  return got;
}

bool LowerTiers::open(const Store& store) const {
  return clock_.now().time_since_epoch().count() >=
         store.closed_until_ns.load(std::memory_order_relaxed);
}

/// Counts what went wrong; T3.
void LowerTiers::judge(Store& store, const Status& outcome) {
  const Code code = outcome ? Code::kNotFound : outcome.error().code();
  if (code == Code::kNotFound || code == Code::kAlreadyExists) {
    if (store.errors.exchange(0) >= kTripErrors) {
      store.flow->set_enabled(true);
      log::info("kv", "the tier answers again", {{"tier", store.store->tier()}});
    }
    return;
  }
  if (code == Code::kCorrupt) {
    store.flow->damaged();
    return;  // one block's fault
  }
  store.flow->io_error();
  const bool hopeless = code == Code::kPermissionDenied || code == Code::kUnauthenticated ||
                        code == Code::kInvalidArgument;
  const uint32_t before = store.errors.fetch_add(hopeless ? kTripErrors : 1);
  if (before + (hopeless ? kTripErrors : 1) < kTripErrors) {
    return;
  }
  const Duration rest = hopeless ? std::chrono::hours(24 * 365) : kTripTime;
  store.closed_until_ns = (clock_.now() + rest).time_since_epoch().count();
  store.flow->set_enabled(false);
  if (before < kTripErrors) {
    log::error("kv",
               hopeless ? "the tier is switched off: fix its address or credentials and restart; "
                          "serving goes on without it"
                        : "the tier does not answer and is left alone for a while; serving goes "
                          "on without it",
               {{"tier", store.store->tier()}, {"reason", outcome.error().message()}});
  }
}

bool LowerTiers::wants(const BlockName& name) const {
  const bool disk_wants = disk_ != nullptr && disk_->wants(name);
  const MutexLock lock(mutex_);
  if (saving_.contains(name.lineage)) {
    return false;
  }
  return disk_wants || (!shared_.contains(name.lineage) &&
                        std::ranges::any_of(stores_, [this](const auto& s) { return open(*s); }));
}

bool LowerTiers::save(const Block& block) {
  {
    const MutexLock lock(mutex_);
    if (saving_.size() >= bounces_max_) {
      return false;
    }
    saving_.insert(block.name.lineage);
    queued_.set(static_cast<double>(saving_.size()));
  }
  auto saving = std::make_shared<Saving>(BlockHeader::kBytes + options_.block_bytes);
  saving->name = block.name;
  saving->parent = block.parent;
  saving->local = block.local;
  saving->asked = clock_.now();
  saving->tokens.assign(block.tokens.begin(), block.tokens.end());
  std::ranges::copy(block.payload, saving->record.bytes().begin() + BlockHeader::kBytes);
  pool_->post(IoPool::Lane::kSave, [this, saving] {
    write_down(*saving);
    release(*saving);
  });
  return true;
}

void LowerTiers::write_down(Saving& saving) {
  const auto record = saving.record.bytes();
  const auto payload = record.subspan(BlockHeader::kBytes);
  if (disk_ != nullptr && disk_->wants(saving.name)) {
    const TimePoint began = clock_.now();
    const Status written = disk_->write({.name = saving.name,
                                         .parent = saving.parent,
                                         .tokens = saving.tokens,
                                         .payload = payload});
    if (written) {
      disk_flow_->saved(options_.block_bytes, began - saving.asked, clock_.now() - began);
      changes_.stored(kv::StorageTier::kDisk, saving.name.lineage, saving.parent, saving.local);
      if (!disk_->contains(saving.name)) {  // evicted already: its removal came too early
        changes_.removed(kv::StorageTier::kDisk, saving.name.lineage);
      }
    } else {
      disk_flow_->refused();
    }
    disk_flow_->set_enabled(disk_->enabled());
  }
  if (stores_.empty()) {
    return;
  }
  BlockHeader header = describe_payload(payload, saving.tokens);
  header.space = options_.space;
  header.name = saving.name;
  header.parent = saving.parent;
  header.unix_ms = static_cast<uint64_t>(unix_seconds(clock_.wall_now())) * 1000;
  encode(header, record.first(BlockHeader::kBytes));
  bool everywhere = true;
  for (const auto& store : stores_) {
    if (!open(*store)) {
      everywhere = false;
      continue;
    }
    everywhere = put(*store, saving, record) && everywhere;
  }
  if (everywhere) {
    const MutexLock lock(mutex_);
    if (shared_.size() >= kSharedNamesMax) {
      shared_.clear();
    }
    shared_.insert(saving.name.lineage);
  }
}

/// Whether the store has it now.
bool LowerTiers::put(Store& store, const Saving& saving, std::span<const std::byte> record) {
  const TimePoint began = clock_.now();
  const Status put = store.store->put(saving.name, record);
  judge(store, put);
  if (!put && put.error().code() != Code::kAlreadyExists) {
    store.flow->failed();
    return false;
  }
  store.flow->saved(options_.block_bytes, began - saving.asked, clock_.now() - began);
  if (store.is_object) {
    changes_.stored(kv::StorageTier::kExternal, saving.name.lineage, saving.parent, saving.local);
  }
  return true;
}

void LowerTiers::release(const Saving& saving) {
  const MutexLock lock(mutex_);
  const bool full = saving_.size() >= bounces_max_;
  saving_.erase(saving.name.lineage);
  queued_.set(static_cast<double>(saving_.size()));
  for (const auto& [owner, wake] : wakes_) {
    if (full) {
      wake();
    }
  }
}

bool LowerTiers::idle() const {
  const MutexLock lock(mutex_);
  return saving_.empty();
}

void LowerTiers::on_room(const void* owner, std::function<void()> wake) {
  const MutexLock lock(mutex_);
  wakes_.insert_or_assign(owner, std::move(wake));
}

void LowerTiers::off_room(const void* owner) {
  const MutexLock lock(mutex_);
  wakes_.erase(owner);
}

}  // namespace stator::storage
