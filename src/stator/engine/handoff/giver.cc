// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/handoff/giver.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "stator/blocks/block_hash.h"
#include "stator/core/crc32c.h"
#include "stator/kv/block_identity.h"
#include "stator/storage/block_name.h"

namespace stator::engine::handoff {
namespace {

/// Blocks without bytes need no memory, but a bound.
constexpr uint32_t kEmptySlots = 1U << 20;

uint32_t count_slots(std::span<const std::byte> staging, uint64_t block_bytes) {
  return block_bytes == 0 ? kEmptySlots
                          : static_cast<uint32_t>(std::min<uint64_t>(
                                staging.size() / block_bytes, std::numeric_limits<int32_t>::max()));
}

}  // namespace

/// One prompt.
struct Giver::Entry {
  Entry(SequenceKey key_in, const inference::EngineRequest& request, std::string owner_in,
        uint32_t block_tokens)
      : key(key_in),
        id(request.handoff.id),
        tokens(request.tokens),
        hasher(block_tokens, blocks::hash_seed(request.lora_name, request.cache_salt)),
        owner(std::move(owner_in)),
        // The last token is always computed by whoever goes on.
        blocks(static_cast<uint32_t>((request.tokens.size() - 1) / block_tokens)) {
    hasher.append(tokens);
  }
  kv::SequenceBlocks sequence() const {
    return {.sequences = hasher.sequences().first(blocks),
            .locals = hasher.locals().first(blocks),
            .tokens = tokens,
            .block_size = hasher.block_size(),
            .owner = owner};
  }

  SequenceKey key;
  uint64_t id;
  Token token{};
  std::vector<TokenId> tokens;
  blocks::BlockHasher hasher;
  std::string owner;
  std::vector<storage::BlockName> names;
  uint32_t blocks;            // that will be given
  std::vector<Ready> staged;  // of the first ones
  uint32_t told = 0;          // of those
  bool offered = false;
  std::optional<std::string> taker;  // who claimed it
  std::optional<Verdict> ended;      // nothing more is computed
  bool end_told = false;
  bool taken = false;  // its taker wants nothing more
  TimePoint expires = TimePoint::max();
};

Giver::Giver(Options options, std::span<std::byte> staging, Link& link, Clock& clock,
             Metrics& metrics)
    : options_(std::move(options)),
      staging_(staging),
      link_(link),
      clock_(clock),
      metrics_(metrics),
      random_(Random::from_entropy()),
      slots_(count_slots(staging, options_.block_bytes)) {
  const MetricLabels labels = {{"engine", options_.engine_name}, {"side", "give"}};
  blocks_ = metrics.counter("stator_engine_handoff_blocks_total",
                            "KV blocks of handed-over prompts, given or taken", labels);
  bytes_ = metrics.counter("stator_engine_handoff_bytes_total", "their bytes", labels);
  full_ = metrics.counter("stator_engine_handoff_staging_full_total",
                          "prompts of which fewer blocks were given because staging memory "
                          "(worker.handoff_bytes) was full",
                          {{"engine", options_.engine_name}});
  open_ = metrics.gauge("stator_engine_handoffs_open",
                        "prompts that are being computed for others or may still be fetched",
                        {{"engine", options_.engine_name}});
}

Giver::~Giver() = default;

Counter Giver::given(std::string_view outcome) {
  return metrics_.counter("stator_engine_handoffs_given_total",
                          "prompts computed for other workers, by how they ended",
                          {{"engine", options_.engine_name}, {"outcome", std::string(outcome)}});
}

void Giver::accept(SequenceKey key, const inference::EngineRequest& request, std::string owner) {
  auto entry = std::make_unique<Entry>(key, request, std::move(owner), options_.block_tokens);
  entry->names = storage::name_blocks(options_.space, entry->sequence());
  const MutexLock lock(mutex_);
  const uint64_t id = entry->id;
  if (entries_.size() >= kEntriesMax || entries_.contains(id)) {
    return;  // its frontend sees an answer without an offer
  }
  for (size_t i = 0; i < entry->token.size(); i += 8) {
    const uint64_t word = random_.next();
    std::memcpy(entry->token.data() + i, &word, sizeof word);
  }
  by_key_.emplace(key, id);
  entries_.emplace(id, std::move(entry));
  open_.set(static_cast<double>(entries_.size()));
}

Giver::Entry* Giver::find(SequenceKey key) {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : entries_.at(found->second).get();
}

void Giver::offers(std::span<Sequence* const> admitted, std::vector<SessionOutput>& outputs) {
  const MutexLock lock(mutex_);
  if (by_key_.empty()) {
    return;
  }
  for (const Sequence* sequence : admitted) {
    Entry* const entry = find(sequence->key);
    if (entry == nullptr || entry->offered) {
      continue;
    }
    entry->offered = true;
    const Invitation invitation{
        .agent = options_.agent,
        .epoch = options_.epoch,
        .metadata = options_.metadata,
        .token = entry->token,
        .space = options_.space,
        .blocks = entry->blocks,
        .block_bytes = options_.block_bytes,
        .lease_ms = static_cast<uint32_t>(
            std::chrono::duration_cast<std::chrono::milliseconds>(options_.lease).count())};
    SessionOutput& made = outputs.emplace_back();
    made.session = entry->key.session;
    // Offers travel beside a delta of their request. For frontends the lease has no end: this side
    // refuses what comes late.
    made.output.deltas.push_back({.key = entry->key.request, .offset = sequence->output_tokens()});
    made.output.offers.push_back({.key = entry->key.request,
                                  .handoff = {.id = entry->id,
                                              .kind = options_.kind,
                                              .payload = encode(invitation),
                                              .lease_ms = 0}});
  }
}

/// False: staging memory is full.
bool Giver::stage_block(Entry& entry, std::span<const std::byte> bytes) {
  uint32_t slot = next_slot_;
  if (!free_slots_.empty()) {
    slot = free_slots_.back();
    free_slots_.pop_back();
  } else if (next_slot_ < slots_) {
    ++next_slot_;
  } else {
    return false;
  }
  Ready ready{.slot = slot, .check = entry.names[entry.staged.size()].check};
  if (options_.block_bytes > 0) {
    const std::span<std::byte> place =
        staging_.subspan(slot * options_.block_bytes, options_.block_bytes);
    std::memcpy(place.data(), bytes.data(), bytes.size());
    ready.crc = crc32c(place);
  }
  entry.staged.push_back(ready);
  return true;
}

void Giver::stage(const StepPlan& plan, ModelRunner& runner) {
  bool news = false;
  {
    const MutexLock lock(mutex_);
    for (size_t s = 0; s < plan.slices.size() && !by_key_.empty(); ++s) {
      Entry* const entry = find(plan.sequences[s]->key);
      if (entry == nullptr || !entry->offered) {
        continue;
      }
      const SequenceSlice& slice = plan.slices[s];
      const size_t complete = (slice.start + slice.count) / options_.block_tokens;
      const size_t end = std::min<size_t>(complete, entry->blocks);
      for (size_t i = entry->staged.size(); i < end; ++i) {
        if (!stage_block(*entry, runner.device_block(slice.blocks[i]))) {
          entry->blocks = static_cast<uint32_t>(entry->staged.size());  // G2
          full_.add();
          break;
        }
        news = true;
      }
    }
  }
  if (news) {
    link_.wake();
  }
}

/// Its request has ended at the engine.
void Giver::end_prompt(Entry& entry, Verdict verdict) {
  by_key_.erase(entry.key);
  entry.ended = verdict;
  entry.blocks = static_cast<uint32_t>(entry.staged.size());
  entry.expires = clock_.now() + options_.lease;
}

void Giver::on_outputs(std::span<const SessionOutput> outputs) {
  bool news = false;
  {
    const MutexLock lock(mutex_);
    if (by_key_.empty()) {
      return;
    }
    for (const auto& [session, output] : outputs) {
      for (const inference::Delta& delta : output.deltas) {
        Entry* const entry = delta.finish == inference::FinishReason::kNone
                                 ? nullptr
                                 : find({.session = session, .request = delta.key});
        if (entry != nullptr) {
          end_prompt(*entry, Verdict::kComplete);
          news = true;
        }
      }
      for (const inference::Failure& failure : output.failures) {
        if (Entry* const entry = find({.session = session, .request = failure.key})) {
          end_prompt(*entry, Verdict::kCancelled);
          news = true;
        }
      }
    }
  }
  if (news) {
    link_.wake();
  }
}

void Giver::cancel(SessionId session, inference::RequestKey key) {
  {
    const MutexLock lock(mutex_);
    Entry* const entry = find({.session = session, .request = key});
    if (entry == nullptr) {
      return;
    }
    end_prompt(*entry, Verdict::kCancelled);
  }
  link_.wake();
}

void Giver::cancel_session(SessionId session) {
  {
    const MutexLock lock(mutex_);
    std::vector<Entry*> gone;
    for (const auto& [key, id] : by_key_) {
      if (key.session == session) {
        gone.push_back(entries_.at(id).get());
      }
    }
    for (Entry* entry : gone) {
      end_prompt(*entry, Verdict::kCancelled);
    }
  }
  link_.wake();
}

size_t Giver::owed() const {
  const MutexLock lock(mutex_);
  return entries_.size();
}

void Giver::close() {
  const MutexLock lock(mutex_);
  while (!by_key_.empty()) {
    end_prompt(*entries_.at(by_key_.begin()->second), Verdict::kClosing);
  }
}

void Giver::forget(Entries::iterator at, Verdict why) {
  Entry& entry = *at->second;
  for (const Ready& ready : entry.staged) {
    free_slots_.push_back(ready.slot);
  }
  by_key_.erase(entry.key);
  if (ended_.size() >= kEndedMax) {
    ended_.pop_front();
  }
  ended_.emplace_back(entry.id, why);
  entries_.erase(at);
  open_.set(static_cast<double>(entries_.size()));
}

Verdict Giver::judge(const Message& claim) {
  const auto found = entries_.find(claim.id);
  if (found == entries_.end()) {
    const auto known = std::ranges::find(ended_, claim.id, &std::pair<uint64_t, Verdict>::first);
    return known == ended_.end() ? Verdict::kUnknown : known->second;
  }
  Entry& entry = *found->second;
  if (claim.epoch != options_.epoch) {
    return Verdict::kEpoch;
  }
  if (claim.token != entry.token || claim.space != options_.space) {
    return Verdict::kForeign;
  }
  if (entry.taker) {
    return Verdict::kSecond;
  }
  return clock_.now() >= entry.expires ? Verdict::kLate : Verdict::kComplete;
}

void Giver::claim(std::string_view peer, const Message& message) {
  if (link_.introduce(message.text) != peer) {
    return;  // whoever it is cannot be answered; it will give up by itself
  }
  Message reply{.kind = Message::Kind::kGranted, .id = message.id};
  {
    const MutexLock lock(mutex_);
    reply.verdict = judge(message);
    if (reply.verdict == Verdict::kComplete) {
      entries_.at(message.id)->taker = std::string(peer);
    }
  }
  if (reply.verdict != Verdict::kComplete) {  // G1
    reply.kind = Message::Kind::kRefused;
    metrics_
        .counter(
            "stator_engine_handoffs_refused_total",
            "claims of prompts that were not given, by reason",
            {{"engine", options_.engine_name}, {"reason", std::string(describe(reply.verdict))}})
        .add();
  }
  link_.send(peer, reply);
}

void Giver::fetched(std::string_view peer, const Message& message) {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(message.id);
  if (found == entries_.end() || found->second->taker != peer) {
    return;
  }
  const uint64_t taken = std::min<uint64_t>(message.first, found->second->staged.size());
  blocks_.add(taken);
  bytes_.add(taken * options_.block_bytes);
  given(found->second->ended == Verdict::kCancelled ? "cancelled" : "fetched").add();
  if (found->second->ended) {
    forget(found, Verdict::kSecond);
  } else {  // the request goes on, for nobody
    found->second->blocks = 0;
    found->second->end_told = true;
    found->second->taken = true;
  }
}

/// A taker that waits asks whether there still is something to wait for.
void Giver::answer(std::string_view peer, uint64_t id) {
  bool known = false;
  {
    const MutexLock lock(mutex_);
    const auto found = entries_.find(id);
    known = found != entries_.end() && found->second->taker == peer;
  }
  link_.send(peer,
             known ? Message{.kind = Message::Kind::kAlive, .id = id}
                   : Message{.kind = Message::Kind::kEnd, .id = id, .verdict = Verdict::kUnknown});
}

void Giver::on_message(std::string_view peer, const Message& message) {
  if (message.kind == Message::Kind::kClaim) {
    claim(peer, message);
  } else if (message.kind == Message::Kind::kFetched) {
    fetched(peer, message);
  } else if (message.kind == Message::Kind::kAlive) {
    answer(peer, message.id);
  }
}

/// What the taker of an entry has not been told.
std::vector<Message> Giver::news(Entry& entry) {
  std::vector<Message> out;
  while (entry.told < entry.staged.size()) {
    Message ready{.kind = Message::Kind::kReady,
                  .id = entry.id,
                  .base = reinterpret_cast<uint64_t>(staging_.data()),
                  .first = entry.told};
    const size_t count = std::min<size_t>(kReadyMax, entry.staged.size() - entry.told);
    const auto begin = entry.staged.begin() + entry.told;
    ready.ready.assign(begin, begin + static_cast<ptrdiff_t>(count));
    entry.told += static_cast<uint32_t>(count);
    out.push_back(std::move(ready));
  }
  if (entry.ended && !entry.end_told) {
    entry.end_told = true;
    out.push_back({.kind = Message::Kind::kEnd,
                   .id = entry.id,
                   .first = static_cast<uint32_t>(entry.staged.size()),
                   .verdict = *entry.ended});
  }
  return out;
}

TimePoint Giver::advance(TimePoint now) {
  std::vector<std::pair<std::string, Message>> mail;
  TimePoint next = TimePoint::max();
  {
    const MutexLock lock(mutex_);
    for (auto at = entries_.begin(); at != entries_.end();) {
      const auto here = at++;
      Entry& entry = *here->second;
      if (entry.taker) {
        for (Message& message : news(entry)) {
          mail.emplace_back(*entry.taker, std::move(message));
        }
      }
      const bool unwanted = entry.ended && *entry.ended != Verdict::kComplete && !entry.taker;
      if (entry.ended && entry.taken) {
        forget(here, Verdict::kSecond);
      } else if (unwanted || now >= entry.expires) {
        given(unwanted ? describe(*entry.ended) : "expired").add();
        if (!unwanted && entry.taker) {
          mail.emplace_back(
              *entry.taker,
              Message{.kind = Message::Kind::kEnd, .id = entry.id, .verdict = Verdict::kLate});
        }
        forget(here, unwanted ? *entry.ended : Verdict::kLate);
      } else {
        next = std::min(next, entry.expires);
      }
    }
  }
  for (const auto& [taker, message] : mail) {
    link_.send(taker, message);
  }
  return next;
}

}  // namespace stator::engine::handoff
