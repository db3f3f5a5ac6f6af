// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/kept_streams.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "stator/core/log.h"
#include "stator/core/random.h"

namespace stator::frontend {
namespace {

using namespace std::chrono_literals;
using Place = continuity::JournalStore::Place;

// A copy that was lost is made anew so much later, twice as much each time it
// is lost again.
constexpr Duration kRenewMin = 1s;
constexpr Duration kRenewMax = 60s;
// Of journals in one sweep: within ack_timeout on a slow network.
constexpr size_t kRenewBytesMax = size_t{1} << 20;

/// Each half from the system's own entropy: nobody can tell one from others
/// that he saw.
continuity::StreamId draw_stream_id() {
  return {.high = Random::from_entropy().next(), .low = Random::from_entropy().next()};
}

StreamGate::Copied copied(bool under_way) {
  return under_way ? StreamGate::Copied::kUnderWay : StreamGate::Copied::kNothing;
}

}  // namespace

KeptStreams::KeptStreams(continuity::JournalHub& hub, net::Shard& shard, FrontendMetrics& metrics,
                         Owner& owner)
    : hub_(hub),
      shard_(shard),
      metrics_(metrics),
      owner_(owner),
      copies_(std::make_shared<StreamCopies>(hub, shard, *this)) {}

std::unique_ptr<StreamGate> KeptStreams::open(net::HttpExchange& exchange,
                                              const GenerationPlan& plan, const PrepareJob& job,
                                              std::optional<StreamCopy>& copy) {
  if (!plan.answer.stream || plan.prompt_logprobs) {
    return nullptr;
  }
  const continuity::StreamId stream = draw_stream_id();
  const auto holder = hub_.choose_holder(stream);
  copy = {.serial = ++last_serial_, .own = stream, .stream = stream, .holder = holder};
  return std::make_unique<StreamGate>(
      exchange, EventId{.stream = stream,
                        .holder = holder.value_or(hub_.own_id()),
                        .event = job.resumed == nullptr ? 0 : job.resumed->first_event});
}

void KeptStreams::begin(ActiveRequest& active, const StreamCopy& copy, const PrepareJob& job) {
  active.copy = copy;
  kept_.emplace(copy.serial, &active);
  active.gate->begin_step();
  const bool under_way =
      bring(active, Place::kBegin,
            continuity::encode(continuity::StreamJournal::Header{.request_hash = job.request_hash,
                                                                 .request_id = job.request_id,
                                                                 .created = job.wall_now}));
  active.gate->end_step(copied(under_way));
}

Progress KeptStreams::advance(ActiveRequest& active, ChoiceRun& run, const inference::Delta& delta,
                              const inference::StepOutput& output) {
  const uint32_t known_tokens = run.journal().generated();
  active.gate->begin_step();
  const Progress progress = active.generation.on_delta(run, delta, output, shard_.now());
  const bool taken = progress != Progress::kStale && progress != Progress::kBroken;
  active.gate->end_step(copied(taken && copy_step(active, run, delta, output, known_tokens)));
  return progress;
}

Status KeptStreams::replay(ActiveRequest& active, const continuity::StreamJournal& journal) {
  std::vector<ChoiceRun>& choices = active.generation.choices();
  for (const inference::StepOutput& step : journal.steps) {
    inference::Delta delta = step.deltas.front();
    const uint64_t index = delta.key.request.value();
    Progress progress = Progress::kBroken;
    if (index < choices.size()) {
      ChoiceRun& run = choices[index];
      delta.key = run.key();
      progress = active.gate == nullptr ? active.generation.on_delta(run, delta, step, shard_.now())
                                        : advance(active, run, delta, step);
    }
    if (progress == Progress::kBroken || progress == Progress::kStale) {
      metrics_.resume_failures.add();
      return Error(Code::kCorrupt, "the journal of this stream makes no sense");
    }
  }
  metrics_.resumed_streams.add();
  copies_->flush();
  return {};
}

void KeptStreams::forget(const ActiveRequest& active) {
  if (active.copy) {
    kept_.erase(active.copy->serial);
  }
}

/// A part of the journal goes to where it is kept. True: it is under way to
/// another process.
bool KeptStreams::bring(ActiveRequest& active, Place place, std::string data) {
  StreamCopy& copy = *active.copy;
  if (place == Place::kBegin || copy.kept) {
    copy.kept = hub_.keep({.stream = copy.own, .place = place, .data = data}).has_value();
  }
  if (copy.holder) {
    copies_->append(*copy.holder, copy.serial,
                    {.stream = copy.stream, .place = place, .data = std::move(data)});
    return true;
  }
  if (!copy.kept) {
    lose_last(active);
  }
  return false;
}

void KeptStreams::lose_last(ActiveRequest& active) {
  log::warn("frontend",
            "a stream goes on without a copy of its journal "
            "(frontend.journal_bytes_max)",
            {{"request_id", active.answer().request_id}});
  kept_.erase(active.copy->serial);
  active.copy.reset();
  active.gate->give_up();
}

/// What was accepted of a delta is brought to the copy. False: there is none,
/// or nothing to bring.
bool KeptStreams::copy_step(ActiveRequest& active, const ChoiceRun& run,
                            const inference::Delta& delta, const inference::StepOutput& output,
                            uint32_t known_tokens) {
  const uint32_t fresh = run.journal().generated() - known_tokens;
  if (!active.copy || (fresh == 0 && delta.finish == inference::FinishReason::kNone)) {
    return false;
  }
  inference::StepOutput step;
  const auto tokens = output.tokens_of(delta).last(fresh);
  const auto logprobs = output.logprobs_of(delta);
  step.tokens.assign(tokens.begin(), tokens.end());
  step.logprobs.assign(logprobs.end() - std::min<ptrdiff_t>(fresh, std::ssize(logprobs)),
                       logprobs.end());
  step.deltas.push_back({.key = {RequestId(run.facts().index), Attempt()},
                         .offset = known_tokens,
                         .token_count = fresh,
                         .cached_tokens = delta.cached_tokens,
                         .finish = delta.finish,
                         .stopped_by_token = delta.stopped_by_token});
  return bring(active, Place::kEnd, continuity::encode(step));
}

void KeptStreams::on_copied(StreamCopies::Serial serial) {
  const auto known = kept_.find(serial);
  if (known == kept_.end()) {
    return;
  }
  ActiveRequest& active = *known->second;
  StreamCopy& copy = *active.copy;
  if (copy.catching_up > 0) {
    if (--copy.catching_up == 0) {
      active.gate->rename(copy.stream, *copy.holder);
      copy.losses = 0;
      metrics_.copies_renewed.add();
    }
    return;
  }
  active.gate->confirm();
  look_whether_done(active);
}

void KeptStreams::on_copy_lost(StreamCopies::Serial serial) {
  const auto known = kept_.find(serial);
  if (known == kept_.end()) {
    return;
  }
  ActiveRequest& active = *known->second;
  metrics_.copies_lost.add();
  StreamCopy& copy = *active.copy;
  if (copy.kept) {
    kept_.erase(known);
    copy.serial = ++last_serial_;  // what else is said of the old one is no news
    kept_.emplace(copy.serial, &active);
    copy.holder.reset();
    copy.catching_up = 0;
    copy.renew_at =
        shard_.now() + std::min(kRenewMax, kRenewMin * (1U << std::min(copy.losses, 8U)));
    ++copy.losses;
    active.gate->fall_back(copy.own, hub_.own_id());
  } else {
    lose_last(active);
  }
  look_whether_done(active);
}

void KeptStreams::look_whether_done(ActiveRequest& active) {
  if (active.gate->done()) {
    owner_.on_copied(active);
  }
}

/// What does not fit waits for the next time, so that what is brought at once
/// is soon acknowledged.
void KeptStreams::renew(TimePoint now) {
  std::vector<StreamCopies::Serial> due;
  for (const auto& [serial, active] : kept_) {
    const StreamCopy& copy = *active->copy;
    if (!copy.holder && copy.kept && now >= copy.renew_at) {
      due.push_back(serial);
    }
  }
  std::ranges::sort(due);
  size_t bytes = 0;
  for (const StreamCopies::Serial serial : due) {
    StreamCopy& copy = *kept_.at(serial)->copy;
    // A name of its own: a late message for the lost copy must not get into
    // this one.
    const continuity::StreamId stream = draw_stream_id();
    const auto holder = hub_.choose_holder(stream);
    if (!holder || bytes > kRenewBytesMax) {
      break;
    }
    std::vector<std::string> parts = hub_.kept(copy.own);
    if (parts.empty()) {  // quiet for longer than frontend.journal_keep
      copy.kept = false;
      continue;
    }
    copy.stream = stream;
    copy.holder = holder;
    bytes += bring_all(serial, std::move(parts));
  }
  copies_->flush();
}

/// The bytes that are under way.
size_t KeptStreams::bring_all(StreamCopies::Serial serial, std::vector<std::string> parts) {
  StreamCopy& copy = *kept_.at(serial)->copy;
  Place place = Place::kBegin;
  size_t bytes = 0;
  for (std::string& part : parts) {
    bytes += part.size();
    ++copy.catching_up;
    copies_->append(*copy.holder, serial,
                    {.stream = copy.stream, .place = place, .data = std::move(part)});
    place = Place::kEnd;
  }
  return bytes;
}

}  // namespace stator::frontend
