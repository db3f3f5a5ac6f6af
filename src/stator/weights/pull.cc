// SPDX-License-Identifier: Apache-2.0
#include "stator/weights/pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "stator/core/crc32c.h"
#include "stator/core/hash.h"
#include "stator/core/log.h"

namespace stator::weights {
namespace {

using transfer::Desc;
using transfer::MemType;
using transfer::Op;
using transfer::Outcome;

Error lost(const Offer& offer, std::string_view what, Outcome outcome, const std::string& cause) {
  return {Code::kUnavailable,
          fmt::format("source {}: {}: {}{}{}", offer.worker, what, transfer::to_string(outcome),
                      cause.empty() ? "" : ", ", cause)};
}

/// A read from a source's memory that is under way.
struct Read {
  size_t chunk = 0;
  uint32_t tries = 1;
  transfer::TransferId id = 0;
};

/// A read of `bytes` at `from` of the offer's source into `to`.
Result<transfer::TransferId> begin_read(transfer::Agent& agent, const Offer& offer, uint64_t from,
                                        std::span<std::byte> to, const PullOptions& options) {
  const Desc local{.addr = reinterpret_cast<uint64_t>(to.data()), .len = to.size()};
  const Desc remote{.addr = from, .len = to.size()};
  transfer::ListId mine = 0;
  transfer::ListId theirs = 0;
  transfer::TransferId id = 0;
  const uint32_t first = 0;
  Outcome outcome = agent.prep_list(transfer::kSelf, MemType::kDram, {&local, 1}, mine);
  if (outcome == Outcome::kSuccess) {
    outcome = agent.prep_list(offer.worker, MemType::kDram, {&remote, 1}, theirs);
  }
  if (outcome == Outcome::kSuccess) {
    outcome = agent.make_xfer({.op = Op::kRead,
                               .local = mine,
                               .local_indices = {&first, 1},
                               .remote = theirs,
                               .remote_indices = {&first, 1},
                               .notification = {},
                               .deadline = options.chunk_deadline},
                              id);
  }
  agent.release_list(mine);
  agent.release_list(theirs);
  if (outcome == Outcome::kSuccess) {
    outcome = agent.post(id);
  }
  if (outcome != Outcome::kInProgress && outcome != Outcome::kSuccess) {
    const std::string cause = id == 0 ? std::string() : agent.cause(id);
    agent.release(id);
    return lost(offer, "reading its memory", outcome, cause);
  }
  return id;
}

Status end_read(transfer::Agent& agent, const Offer& offer, transfer::TransferId id,
                const PullOptions& options) {
  const Outcome outcome = agent.wait(id, options.chunk_deadline * 2);
  const std::string cause = agent.cause(id);
  while (agent.release(id) == Outcome::kInProgress) {  // it still writes to our memory
    agent.wait(id, std::chrono::milliseconds(100));
  }
  return outcome == Outcome::kSuccess ? Status()
                                      : Status(lost(offer, "reading its memory", outcome, cause));
}

/// One source's part of a pull.
class FromSource {
 public:
  FromSource(transfer::Agent& agent, const Offer& offer, const Manifest& manifest,
             std::span<std::byte> target, const PullOptions& options)
      : agent_(agent), offer_(offer), manifest_(manifest), target_(target), options_(options) {}

  /// Reads all chunks that `have` lacks and sets them there. An error: the source is of no use any
  /// more; what it gave stays.
  Status run(std::vector<bool>& have, Pulled& out) {
    Status done;
    for (size_t next = 0; done && (next < have.size() || !under_way_.empty());) {
      if (next < have.size() && have[next]) {
        ++next;
      } else if (next < have.size() && under_way_.size() < options_.chunks_max) {
        done = begin(next++, 1);
      } else {
        done = finish_one(have, out);
      }
    }
    while (!under_way_.empty()) {  // nothing may write to the target when this returns
      const Read read = under_way_.front();
      under_way_.pop_front();
      end_read(agent_, offer_, read.id, options_).ignore("another source gives it");
    }
    return done;
  }

 private:
  std::span<std::byte> place(size_t chunk) const {
    const uint64_t at = chunk * manifest_.chunk_bytes;
    return target_.subspan(at, std::min<uint64_t>(manifest_.chunk_bytes, target_.size() - at));
  }
  Status begin(size_t chunk, uint32_t tries) {
    STATOR_TRY(const transfer::TransferId id,
               begin_read(agent_, offer_, offer_.arena.addr + chunk * manifest_.chunk_bytes,
                          place(chunk), options_));
    under_way_.push_back({.chunk = chunk, .tries = tries, .id = id});
    return {};
  }
  Status finish_one(std::vector<bool>& have, Pulled& out) {
    const Read read = under_way_.front();
    under_way_.pop_front();
    STATOR_CHECK(end_read(agent_, offer_, read.id, options_));
    if (crc32c(place(read.chunk)) != manifest_.chunk_crcs[read.chunk]) {
      ++out.damaged_chunks;
      if (read.tries >= options_.reads_of_a_chunk) {
        return Error(Code::kCorrupt, fmt::format("source {}: chunk {} has another checksum than "
                                                 "its manifest says",
                                                 offer_.worker, read.chunk));
      }
      return begin(read.chunk, read.tries + 1);
    }
    have[read.chunk] = true;
    out.bytes += place(read.chunk).size();
    if (options_.progress) {
      options_.progress(out.bytes);
    }
    return {};
  }

  transfer::Agent& agent_;
  const Offer& offer_;
  const Manifest& manifest_;
  const std::span<std::byte> target_;
  const PullOptions& options_;
  std::deque<Read> under_way_;
};

/// Chunks that were checked against `before` and count for `now`, too.
void keep_equal(const Manifest& before, const Manifest& now, std::vector<bool>& have, Pulled& out) {
  const bool same_cut =
      before.chunk_bytes == now.chunk_bytes && before.arena_bytes == now.arena_bytes;
  for (size_t i = 0; i < have.size(); ++i) {
    have[i] = have[i] && same_cut && before.chunk_crcs[i] == now.chunk_crcs[i];
  }
  have.resize(now.chunks(), false);
  out.bytes = 0;
  for (size_t i = 0; i < have.size(); ++i) {
    const uint64_t at = i * now.chunk_bytes;
    out.bytes += have[i] ? std::min(now.chunk_bytes, now.arena_bytes - at) : 0;
  }
}

}  // namespace

std::vector<Offer> rendezvous(std::vector<Offer> offers, std::string_view target) {
  std::ranges::sort(offers, std::ranges::greater(), [&](const Offer& offer) {
    const std::string both = fmt::format("{}\n{}", target, offer.worker);
    return xxh3_64(std::as_bytes(std::span(both)));
  });
  return offers;
}

Result<Manifest> fetch_manifest(transfer::Agent& agent, const Offer& offer,
                                const PullOptions& options) {
  std::string peer;
  if (const Outcome known = agent.load_remote_md(offer.metadata, peer);
      known != Outcome::kSuccess || peer != offer.worker) {
    return lost(offer, "it cannot be reached", known, "");
  }
  const std::span<std::byte> memory = agent.allocate(std::max<uint64_t>(1, offer.manifest.len));
  if (memory.empty()) {
    return Error(Code::kUnavailable, "no memory for a manifest");
  }
  const Desc range{.addr = reinterpret_cast<uint64_t>(memory.data()), .len = memory.size()};
  agent.register_mem(MemType::kDram, {&range, 1});
  const auto id = begin_read(agent, offer, offer.manifest.addr, memory, options);
  Status read = id ? end_read(agent, offer, *id, options) : Status(id.error().clone());
  const std::string text(reinterpret_cast<const char*>(memory.data()), offer.manifest.len);
  agent.deregister_mem(MemType::kDram, {&range, 1});
  STATOR_CHECK(std::move(read));
  if (crc32c(std::as_bytes(std::span(text))) != offer.manifest_crc) {
    return Error(Code::kCorrupt, fmt::format("source {}: its manifest has another checksum than "
                                             "its offer says",
                                             offer.worker));
  }
  STATOR_TRY(Manifest manifest, decode_manifest(text), offer.worker);
  if (manifest.arena_bytes != offer.arena.len || manifest.identity.id() != offer.source_id) {
    return Error(Code::kCorrupt,
                 fmt::format("source {}: its manifest is not that of its offer", offer.worker));
  }
  return manifest;
}

Result<Pulled> pull(transfer::Agent& agent, std::span<std::byte> target, const Manifest& wanted,
                    std::vector<Offer> offers, const PullOptions& options) {
  Pulled out;
  std::vector<bool> have;
  Error last(Code::kNotFound, "nobody offers these weights");
  uint32_t tried = 0;
  for (const Offer& offer : rendezvous(std::move(offers), agent.name())) {
    if (tried++ == options.sources_max) {
      break;
    }
    auto manifest = fetch_manifest(agent, offer, options);
    Status usable = manifest ? Status() : Status(manifest.error().clone());
    if (usable && !wanted.pieces.empty()) {
      usable = check_same(wanted, *manifest);
    }
    if (usable &&
        (manifest->identity != wanted.identity || manifest->arena_bytes != target.size())) {
      usable =
          Error(Code::kInvalidArgument,
                fmt::format("source {}: other weights, or other memory for them", offer.worker));
    }
    if (usable) {
      keep_equal(out.manifest, *manifest, have, out);
      out.manifest = std::move(*manifest);
      const uint64_t before = out.bytes;
      usable = FromSource(agent, offer, out.manifest, target, options).run(have, out);
      if (out.bytes > before || usable) {
        out.sources.push_back(offer.worker);
      }
    }
    agent.invalidate_remote_md(offer.worker);
    if (usable) {
      return out;
    }
    log::warn("weights", "a source of weights is given up; another one is asked",
              {{"reason", usable.error().message()}});
    last = std::move(usable.error());
  }
  return Error(Code::kNotFound, fmt::format("no source gave these weights: {}", last.message()));
}

}  // namespace stator::weights
