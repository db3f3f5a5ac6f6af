// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/handoff/taker.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <utility>

#include "stator/core/crc32c.h"
#include "stator/core/log.h"

namespace stator::engine::handoff {
namespace {

using transfer::Desc;
using transfer::MemType;
using transfer::Outcome;

/// Between two questions whether the giver lives.
constexpr Duration kAsk = std::chrono::milliseconds(500);
constexpr Duration kTransferDeadline = std::chrono::seconds(5);
/// Messages that may overtake each other.
constexpr size_t kAheadMax = 4096;
constexpr std::array<double, 14> kSeconds = {1e-4, 3e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02,
                                             0.05, 0.1,  0.3,  1,    3,    10,   30};

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

/// One prompt on its way here.
struct Taker::Pull {
  struct Posted {
    size_t first = 0;  // of the wanted ones
    std::vector<Ready> ready;
    transfer::TransferId transfer = 0;
    transfer::ListId local = 0;
    transfer::ListId remote = 0;
  };
  Want want;
  std::string giver;
  bool claimed = false;
  uint64_t base = 0;
  size_t known = 0;                 // first blocks of the prompt that were told
  std::map<size_t, Message> ahead;  // told blocks behind those, by the first
  size_t verified = 0;              // wanted ones that are here and right
  std::deque<Posted> posted;
  std::optional<size_t> all;  // blocks that the giver has, when it has told its end
  std::optional<Verdict> verdict;
  std::optional<End> end;
  TimePoint began{};
  TimePoint heard{};
  TimePoint asked{};
  TimePoint computed{};  // when the giver's end was heard
};

std::string_view Taker::describe(End end) {
  constexpr std::array<std::string_view, 9> kNames = {
      "whole", "short", "refused", "foreign", "damaged", "lost", "late", "closing", "needless"};
  return kNames[static_cast<size_t>(end)];
}

Taker::Taker(Options options, transfer::Agent& agent, Link& link, Clock& clock, Metrics& metrics)
    : options_(std::move(options)), agent_(agent), link_(link), clock_(clock), metrics_(metrics) {
  const MetricLabels engine = {{"engine", options_.engine_name}};
  const MetricLabels labels = {{"engine", options_.engine_name}, {"side", "take"}};
  blocks_ = metrics.counter("stator_engine_handoff_blocks_total",
                            "KV blocks of handed-over prompts, given or taken", labels);
  bytes_ = metrics.counter("stator_engine_handoff_bytes_total", "their bytes", labels);
  early_bytes_ = metrics.counter(
      "stator_engine_handoff_early_bytes_total",
      "bytes of taken prompts that came while the rest was still being computed", engine);
  damaged_ =
      metrics.counter("stator_engine_handoff_integrity_errors_total",
                      "blocks of other workers with a wrong checksum or of other tokens", engine);
  seconds_ = metrics.histogram("stator_engine_handoff_seconds",
                               "from a claim to the last block of the prompt", kSeconds, engine);
  tail_seconds_ = metrics.histogram(
      "stator_engine_handoff_tail_seconds",
      "from the giver's word that a prompt is computed to its last block here", kSeconds, engine);
}

Taker::~Taker() = default;

void Taker::take(Want want) {
  auto pull = std::make_unique<Pull>();
  pull->want = std::move(want);
  {
    const MutexLock lock(mutex_);
    fresh_.push_back(std::move(pull));
    ++live_;
  }
  link_.wake();
}

void Taker::close() {
  const MutexLock lock(mutex_);
  closing_ = true;
}

bool Taker::none() const {
  const MutexLock lock(mutex_);
  return live_ == 0;
}

void Taker::stop(Pull& pull, End end) {
  if (pull.end) {
    return;
  }
  pull.end = end;
  for (const Pull::Posted& posted : pull.posted) {
    agent_.release(posted.transfer);  // cancels it; its memory stays in use until it has ended
  }
}

void Taker::start(Pull& pull, TimePoint now) {
  pull.began = pull.heard = pull.asked = now;
  const inference::Handoff& handoff = pull.want.handoff;
  const auto invitation = decode_invitation(handoff.payload);
  if (!invitation || handoff.kind != options_.kind || invitation->space != options_.space ||
      invitation->block_bytes != options_.block_bytes) {
    if (!invitation) {
      log::warn("engine", "a prompt cannot be taken over and is computed here",
                {{"reason", invitation.error().message()}});
    }
    stop(pull, End::kForeign);
    return;
  }
  pull.giver = link_.introduce(invitation->metadata);
  const Message claim{.kind = Message::Kind::kClaim,
                      .id = handoff.id,
                      .epoch = invitation->epoch,
                      .token = invitation->token,
                      .space = options_.space,
                      .text = options_.metadata};
  pull.claimed =
      !pull.giver.empty() && pull.giver == invitation->agent && link_.send(pull.giver, claim);
  if (!pull.claimed) {
    stop(pull, End::kLost);
  } else if (pull.want.names.empty()) {
    stop(pull, End::kNeedless);
  }
}

void Taker::on_message(std::string_view peer, const Message& message) {
  const auto found = pulls_.find(message.id);
  if (found == pulls_.end() || found->second->giver != peer) {
    return;
  }
  Pull& pull = *found->second;
  pull.heard = clock_.now();
  switch (message.kind) {
    case Message::Kind::kRefused:
      pull.verdict = message.verdict;
      stop(pull, End::kRefused);
      break;
    case Message::Kind::kReady:
      pull.ahead.insert_or_assign(message.first, message);
      while (!pull.end && pull.ahead.contains(pull.known)) {
        const Message next = std::move(pull.ahead.extract(pull.known).mapped());
        accept(pull, next);
      }
      if (pull.ahead.size() > kAheadMax) {
        stop(pull, End::kLost);
      }
      break;
    case Message::Kind::kEnd:
      pull.all = message.first;
      pull.verdict = message.verdict;
      pull.computed = pull.heard;
      break;
    case Message::Kind::kGranted:
    case Message::Kind::kClaim:
    case Message::Kind::kAlive:
    case Message::Kind::kFetched:
      break;
  }
}

/// Asks for the blocks of a message that are wanted here.
void Taker::accept(Pull& pull, const Message& message) {
  const size_t begin = pull.want.begin;
  const size_t end = begin + pull.want.names.size();
  pull.base = message.base;
  pull.known += message.ready.size();
  const size_t from = std::max<size_t>(message.first, begin);
  const size_t to = std::min(pull.known, end);
  if (from >= to) {
    return;
  }
  const auto ready = std::span(message.ready).subspan(from - message.first, to - from);
  for (size_t i = 0; i < ready.size(); ++i) {
    if (ready[i].check != pull.want.names[from - begin + i].check) {
      damaged_.add();
      stop(pull, End::kForeign);
      return;
    }
  }
  if (options_.block_bytes == 0) {
    pull.verified += ready.size();
  } else if (!post(pull, from - begin, ready)) {
    stop(pull, End::kLost);
  }
}

/// Reads blocks `first` and later of the wanted ones.
bool Taker::post(Pull& pull, size_t first, std::span<const Ready> ready) {
  std::vector<Desc> local;
  std::vector<Desc> remote;
  for (size_t i = 0; i < ready.size(); ++i) {
    const std::span<std::byte> place = pull.want.places[first + i];
    local.push_back({.addr = reinterpret_cast<uint64_t>(place.data()), .len = place.size()});
    remote.push_back({.addr = pull.base + uint64_t{ready[i].slot} * options_.block_bytes,
                      .len = options_.block_bytes});
  }
  Pull::Posted posted{.first = first, .ready = {ready.begin(), ready.end()}};
  Outcome outcome = agent_.prep_list(transfer::kSelf, MemType::kDram, local, posted.local);
  if (outcome == Outcome::kSuccess) {
    outcome = agent_.prep_list(pull.giver, MemType::kDram, remote, posted.remote);
  }
  if (outcome == Outcome::kSuccess) {
    outcome = agent_.make_xfer({.op = transfer::Op::kRead,
                                .local = posted.local,
                                .local_indices = {},
                                .remote = posted.remote,
                                .remote_indices = {},
                                .notification = {},
                                .all = true,
                                .deadline = kTransferDeadline},
                               posted.transfer);
  }
  if (outcome == Outcome::kSuccess) {
    outcome = agent_.post(posted.transfer);
  }
  agent_.release_list(posted.local);  // the transfer has what it needs
  agent_.release_list(posted.remote);
  if (outcome != Outcome::kInProgress && outcome != Outcome::kSuccess) {
    log::warn("engine", "the blocks of a prompt cannot be read",
              {{"giver", pull.giver}, {"reason", transfer::to_string(outcome)}});
    agent_.release(posted.transfer);
    return false;
  }
  pull.posted.push_back(std::move(posted));
  return true;
}

void Taker::settle_transfers(Pull& pull) {
  while (!pull.posted.empty()) {
    const Pull::Posted posted = pull.posted.front();
    const Outcome outcome = agent_.status(posted.transfer);
    if (outcome == Outcome::kInProgress) {
      return;
    }
    const std::string cause = agent_.cause(posted.transfer);
    agent_.release(posted.transfer);
    pull.posted.pop_front();
    if (pull.end) {
      continue;
    }
    if (outcome == Outcome::kSuccess) {
      verify(pull, posted.first, posted.ready);
    } else {
      log::warn("engine", "the blocks of a prompt did not come",
                {{"giver", pull.giver}, {"reason", cause}});
      stop(pull, End::kLost);
    }
  }
}

void Taker::verify(Pull& pull, size_t first, std::span<const Ready> ready) {
  for (size_t i = 0; i < ready.size(); ++i) {
    if (crc32c(pull.want.places[first + i]) != ready[i].crc) {
      damaged_.add();
      stop(pull, End::kDamaged);
      return;
    }
    ++pull.verified;
    early_bytes_.add(pull.all ? 0 : options_.block_bytes);
  }
}

/// Ends a pull that has all there is, or that has waited long enough.
void Taker::watch(Pull& pull, TimePoint now) {
  if (pull.end) {
    return;
  }
  const size_t wanted = pull.want.names.size();
  const bool drained = pull.posted.empty() && pull.all && pull.known >= *pull.all;
  if (pull.verified == wanted) {
    stop(pull, End::kWhole);
  } else if (drained) {
    stop(pull, pull.verdict == Verdict::kComplete ? End::kShort : End::kRefused);
  } else if (pull.all && *pull.all < pull.known) {
    stop(pull, End::kRefused);  // taken back
  } else if (now - pull.began >= options_.patience) {
    stop(pull, End::kLate);
  } else if (now - pull.heard >= options_.silence) {
    stop(pull, End::kLost);
  } else if (now - std::max(pull.asked, pull.heard) >= kAsk) {
    pull.asked = now;
    if (!link_.send(pull.giver, {.kind = Message::Kind::kAlive, .id = pull.want.handoff.id})) {
      stop(pull, End::kLost);
    }
  }
}

void Taker::finish(Pull& pull, TimePoint now) {
  const auto count = static_cast<uint32_t>(pull.verified);
  if (pull.claimed && pull.end != End::kRefused) {
    link_.send(pull.giver,
               {.kind = Message::Kind::kFetched, .id = pull.want.handoff.id, .first = count});
  }
  blocks_.add(pull.verified);
  bytes_.add(pull.verified * options_.block_bytes);
  seconds_.observe(seconds(now - pull.began));
  if (pull.all) {
    tail_seconds_.observe(seconds(now - pull.computed));
  }
  const MetricLabels engine = {{"engine", options_.engine_name}};
  metrics_
      .counter("stator_engine_handoffs_taken_total",
               "prompts taken over from other workers, by how that ended",
               {{"engine", options_.engine_name}, {"outcome", std::string(describe(*pull.end))}})
      .add();
  if (pull.end != End::kWhole && pull.end != End::kNeedless) {
    const std::string_view reason = pull.end == End::kRefused && pull.verdict
                                        ? handoff::describe(*pull.verdict)
                                        : describe(*pull.end);
    metrics_
        .counter("stator_engine_handoff_fallbacks_total",
                 "prompts computed here, wholly or in part, because they could not be taken over",
                 {{"engine", options_.engine_name}, {"reason", std::string(reason)}})
        .add();
  }
  pull.want.done(pull.verified);
}

TimePoint Taker::advance(TimePoint now) {
  std::vector<std::unique_ptr<Pull>> fresh;
  bool closing = false;
  {
    const MutexLock lock(mutex_);
    fresh.swap(fresh_);
    closing = closing_;
  }
  for (auto& pull : fresh) {
    const uint64_t id = pull->want.handoff.id;
    const auto [entry, is_new] = pulls_.try_emplace(id, std::move(pull));
    if (is_new) {
      start(*entry->second, now);
    } else {  // the same hand-off again: the first one has it
      pull->began = now;
      pull->end = End::kRefused;
      pull->verdict = Verdict::kSecond;
      finish(*pull, now);
      const MutexLock lock(mutex_);
      --live_;
    }
  }
  TimePoint next = TimePoint::max();
  for (auto at = pulls_.begin(); at != pulls_.end();) {
    const auto here = at++;
    Pull& pull = *here->second;
    if (closing) {
      stop(pull, End::kClosing);
    }
    settle_transfers(pull);
    watch(pull, now);
    if (pull.end && pull.posted.empty()) {
      finish(pull, now);
      pulls_.erase(here);
      const MutexLock lock(mutex_);
      --live_;
      continue;
    }
    if (pull.end) {
      continue;  // the end of its transfers is news
    }
    next = std::min({next, pull.began + options_.patience, pull.heard + options_.silence,
                     std::max(pull.asked, pull.heard) + kAsk});
  }
  return next;
}

}  // namespace stator::engine::handoff
