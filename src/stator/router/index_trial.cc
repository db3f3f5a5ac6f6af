// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/core/random.h"
#include "stator/router/index/chain_index.h"
#include "stator/router/index/pretend_engine.h"

namespace stator::router {
namespace {

constexpr uint64_t kEngines = 8;
constexpr size_t kEngineBlocks = 3000;
constexpr uint64_t kAmpleBytes = 256ULL << 20;
constexpr uint64_t kScarceBytes = 64ULL << 10;  // less than the blocks take: it must evict
constexpr uint64_t kScarceSlack = 8ULL << 10;
constexpr size_t kLinkMessages = 4;
constexpr uint64_t kLongOneIn = 100;  // mostly short: more operations in the same time

/// What workers said they hold: a block counts while one of the names it was stored under has not
/// been removed. The oracle forgets it with the first of them, which is too strict a bound where
/// removals were lost and a worker has several names for one block.
class Reported {
 public:
  void apply(WorkerKey key, const kv::KvEvent& event) {
    if (std::holds_alternative<kv::AllCleared>(event.data)) {
      remove_worker(key);
      return;
    }
    Worker& worker = workers_[key];
    if (const auto* run = std::get_if<kv::BlocksStored>(&event.data)) {
      store(worker, *run);
      return;
    }
    for (const blocks::ExternalHash name : std::get<kv::BlocksRemoved>(event.data).blocks) {
      remove(worker, name);
    }
  }

  void remove_worker(WorkerKey key) { workers_.erase(key); }

  uint32_t depth(WorkerKey key, std::span<const blocks::SequenceHash> query) const {
    const auto worker = workers_.find(key);
    uint32_t depth = 0;
    while (worker != workers_.end() && depth < query.size() &&
           worker->second.names_of.contains(query[depth])) {
      ++depth;
    }
    return depth;
  }

 private:
  struct Worker {
    FlatMap<blocks::ExternalHash, blocks::SequenceHash> content;
    FlatMap<blocks::SequenceHash, uint32_t> names_of;  ///< how many
  };

  static void remove(Worker& worker, blocks::ExternalHash name) {
    const auto known = worker.content.find(name);
    if (known == worker.content.end()) {
      return;
    }
    const auto names = worker.names_of.find(known->second);
    if (--names->second == 0) {
      worker.names_of.erase(names);
    }
    worker.content.erase(known);
  }

  static void store(Worker& worker, const kv::BlocksStored& run) {
    std::optional<blocks::SequenceHash> above;
    if (run.parent) {
      const auto parent = worker.content.find(*run.parent);
      if (parent == worker.content.end()) {
        return;
      }
      above = parent->second;
    }
    for (const kv::StoredBlock& block : run.blocks) {
      above = above ? blocks::chain(*above, block.local) : blocks::chain(block.local);
      remove(worker, block.external);
      worker.content.emplace(block.external, *above);
      ++worker.names_of[*above];
    }
  }

  FlatMap<WorkerKey, Worker> workers_;
};

enum class Kind : uint8_t { kPerfect, kDamaged, kScarce };
constexpr uint64_t kKinds = 3;

class Round {
 public:
  static Result<std::unique_ptr<Round>> create(Kind kind, uint64_t seed) {
    STATOR_TRY(auto index,
               ChainIndex::create({.bytes_max = kind == Kind::kScarce ? kScarceBytes : kAmpleBytes,
                                   .seed = seed}));
    return std::unique_ptr<Round>(new Round(kind, seed, std::move(index)));
  }

  /// One event or lookup. Empty, or what is wrong.
  std::string step(IndexTrialTally& tally) {
    ++tally.operations;
    if (random_.below(3) == 0) {
      return look_up(tally);
    }
    ++tally.events;
    const uint64_t what = random_.below(1000);
    PretendEngine& engine = engines_[random_.below(engines_.size())];
    if (what == 0) {
      return send(engine, {.event_id = 1, .data = kv::AllCleared{}}, tally, true);
    }
    if (what == 1) {
      link_.clear();
      index_->remove_worker(engine.key());
      oracle_.remove_worker(engine.key());
      reported_.remove_worker(engine.key());
      engine.clear();
      return check_size();
    }
    const bool full = engine.held_blocks() > kEngineBlocks;
    const auto event = full || what < 400
                           ? engine.evict(1 + random_.below(full ? 200 : 30), random_)
                           : engine.store(random_prompt(random_, kLongOneIn));
    return event ? send(engine, *event, tally, false) : std::string();
  }

  const ChainIndex& index() const { return *index_; }

 private:
  Round(Kind kind, uint64_t seed, std::unique_ptr<ChainIndex> index)
      : kind_(kind), random_(seed), index_(std::move(index)) {
    // Every second round all engines name alike; otherwise names meet that do not fit.
    const bool mixed = random_.below(2) == 0;
    const auto naming = static_cast<Naming>(random_.below(kNamingCount));
    for (uint64_t id = 1; id <= kEngines; ++id) {
      engines_.emplace_back(WorkerKey{WorkerId(id), static_cast<uint32_t>(id % 2)},
                            mixed ? static_cast<Naming>(random_.below(kNamingCount)) : naming);
    }
  }

  std::string send(PretendEngine& engine, const kv::KvEvent& event, IndexTrialTally& tally,
                   bool clears) {
    if (clears) {
      engine.clear();
    }
    if (kind_ != Kind::kDamaged) {
      return deliver(engine.key(), event, tally);
    }
    if (random_.below(10) != 0) {
      link_.emplace_back(engine.key(), event);
    }
    if (random_.below(10) == 0) {
      link_.emplace_back(engine.key(), event);
    }
    while (link_.size() > random_.below(kLinkMessages)) {
      const size_t at = random_.below(link_.size());
      std::string wrong = deliver(link_[at].first, link_[at].second, tally);
      link_.erase(link_.begin() + static_cast<ptrdiff_t>(at));
      if (!wrong.empty()) {
        return wrong;
      }
    }
    return {};
  }

  std::string deliver(WorkerKey worker, const kv::KvEvent& event, IndexTrialTally& tally) {
    if (const auto* stored = std::get_if<kv::BlocksStored>(&event.data)) {
      tally.event_blocks += stored->blocks.size();
    } else if (const auto* removed = std::get_if<kv::BlocksRemoved>(&event.data)) {
      tally.event_blocks += removed->blocks.size();
    }
    const Applied mine = index_->apply(worker, event);
    if (kind_ == Kind::kDamaged) {
      reported_.apply(worker, event);
    }
    const Applied theirs = oracle_.apply(worker, event);
    if (kind_ == Kind::kPerfect && mine != theirs) {
      return fmt::format("the event ended as {} instead of {}", static_cast<int>(mine),
                         static_cast<int>(theirs));
    }
    return check_size();
  }

  std::string check_size() const {
    if (kind_ == Kind::kPerfect && index_->holder_blocks() != oracle_.holder_blocks()) {
      return fmt::format("{} blocks are held instead of {}", index_->holder_blocks(),
                         oracle_.holder_blocks());
    }
    if (index_->memory_bytes() >
        (kind_ == Kind::kScarce ? kScarceBytes : kAmpleBytes) + kScarceSlack) {
      return fmt::format("{} bytes are in use", index_->memory_bytes());
    }
    return {};
  }

  std::string look_up(IndexTrialTally& tally) {
    ++tally.lookups;
    const auto query = sequences_of(random_prompt(random_, kLongOneIn));
    index_->find_longest_match(query, found_);
    oracle_.find_longest_match(query, expected_);
    for (const Overlap& overlap : expected_) {
      tally.oracle_blocks += overlap.blocks;
    }
    for (const Overlap& overlap : found_) {
      tally.matched_blocks += overlap.blocks;
      const uint32_t most = most_blocks(overlap.worker, query);
      if (overlap.blocks > most || (kind_ == Kind::kPerfect && overlap.blocks < most)) {
        return fmt::format("worker {} is said to hold {} blocks instead of {}",
                           overlap.worker.worker.value(), overlap.blocks, most);
      }
    }
    if (kind_ == Kind::kPerfect && found_.size() != expected_.size()) {
      return fmt::format("{} workers were found instead of {}", found_.size(), expected_.size());
    }
    return {};
  }

  uint32_t most_blocks(WorkerKey worker, std::span<const blocks::SequenceHash> query) const {
    if (kind_ == Kind::kDamaged) {
      return reported_.depth(worker, query);
    }
    const auto truth = std::ranges::find(expected_, worker, &Overlap::worker);
    return truth == expected_.end() ? 0 : truth->blocks;
  }

  const Kind kind_;
  Random random_;
  std::unique_ptr<ChainIndex> index_;
  ExactIndex oracle_;
  Reported reported_;
  std::vector<PretendEngine> engines_;
  std::vector<std::pair<WorkerKey, kv::KvEvent>> link_;  // at most a few messages
  std::vector<Overlap> found_;
  std::vector<Overlap> expected_;
};

}  // namespace

Result<IndexTrialTally> run_index_trial(const IndexTrialConfig& config) {
  IndexTrialTally tally;
  for (uint64_t number = 0; tally.operations < config.operations; ++number) {
    STATOR_TRY(const auto round, Round::create(static_cast<Kind>(number % kKinds),
                                               mix64(config.seed * 1'000'003 + number)));
    const uint64_t end = std::min(config.operations, tally.operations + config.round);
    while (tally.operations < end) {
      if (const std::string wrong = round->step(tally); !wrong.empty()) {
        return Error(Code::kInternal, fmt::format("seed {}, round {}, after {} operations: {}",
                                                  config.seed, number, tally.operations, wrong));
      }
    }
    tally.evicted_blocks += round->index().stats().evicted_blocks;
  }
  return tally;
}

}  // namespace stator::router
