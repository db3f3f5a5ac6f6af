// SPDX-License-Identifier: Apache-2.0
// The part of ShardService that deals with frontends that die: other frontends keep copies of its
// streams' journals, and clients of theirs come here for the rest.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/core/hash.h"
#include "stator/core/log.h"
#include "stator/core/random.h"
#include "stator/frontend/shard_service.h"

namespace stator::frontend {
namespace {

using namespace std::chrono_literals;
using Place = continuity::JournalStore::Place;

// A copy that was lost is made anew so much later, twice as much each time it is lost again.
constexpr Duration kRenewMin = 1s;
constexpr Duration kRenewMax = 60s;
// Of journals in one sweep: within ack_timeout on a slow network.
constexpr size_t kRenewBytesMax = size_t{1} << 20;

uint64_t hash_of(const PrepareJob& job) {
  uint64_t hash = xxh3_64(job.body) ^ mix64(xxh3_64(job.http.path()));
  for (const std::string_view name : {"authorization", "x-api-key", "x-tenant-id"}) {
    hash = mix64(hash ^ xxh3_64(job.http.header(name).value_or("")));
  }
  return hash;
}

/// Each half from the system's own entropy: nobody can tell one from others that he saw.
continuity::StreamId draw_stream_id() {
  return {.high = Random::from_entropy().next(), .low = Random::from_entropy().next()};
}

Error unknown_stream() {
  return Error(Code::kNotFound,
               "nobody keeps the stream of this Last-Event-ID for this request (any more, see "
               "frontend.journal_keep); send it without to begin anew");
}

}  // namespace

/// False: it is no return.
bool ShardService::begin_resuming(net::HttpExchange& exchange,
                                  const std::shared_ptr<PrepareJob>& job) {
  if (!generates(job->route.kind)) {
    return false;
  }
  job->request_hash = hash_of(*job);
  const auto given = job->http.header("last-event-id");
  if (!given) {
    return false;
  }
  const auto last = parse_event_id(*given);
  if (!last) {
    metrics_.resume_failures.add();
    refuse(exchange, *job,
           Error(Code::kInvalidArgument, "Last-Event-ID must be the id of an event of a stream"));
    return true;
  }
  auto owned = std::make_unique<Resuming>(*this, exchange, job, *last);
  Resuming* const waiting = owned.get();
  resuming_.emplace(waiting, std::move(owned));
  exchange.set_observer(waiting);
  environment_.journals->fetch(
      last->holder, last->stream, shard_,
      [this, waiting, alive = std::weak_ptr(copies_)](Result<std::vector<std::string>>& parts) {
        if (const auto still = alive.lock()) {
          on_fetched(waiting, parts);
        }
      });
  return true;
}

void ShardService::on_fetched(Resuming* waiting, Result<std::vector<std::string>>& parts) {
  const auto known = resuming_.find(waiting);
  if (known == resuming_.end()) {
    return;
  }
  const std::unique_ptr<Resuming> owned = std::move(known->second);
  resuming_.erase(known);
  PrepareJob& job = *owned->job;
  owned->exchange.set_observer(nullptr);
  auto journal = parts ? continuity::decode_journal(*parts)
                       : Result<continuity::StreamJournal>(std::move(parts.error()));
  if (!journal || journal->header.request_hash != job.request_hash) {
    metrics_.resume_failures.add();
    const bool away = !journal && journal.error().code() == Code::kUnavailable;
    refuse(owned->exchange, job, away ? std::move(journal.error()) : unknown_stream());
    return;
  }
  job.request_id = journal->header.request_id;
  job.wall_now = journal->header.created;
  job.resumed = std::make_shared<const ResumedStream>(
      ResumedStream{.first_event = owned->last.event + 1, .journal = std::move(*journal)});
  desk_.submit(owned->exchange, owned->job);
}

void ShardService::resuming_client_gone(Resuming& waiting) {
  const auto known = resuming_.find(&waiting);
  const std::unique_ptr<Resuming> owned = std::move(known->second);
  resuming_.erase(known);
  on_client_left(*owned->job);
}

void ShardService::fail_resuming(const Error& error) {
  while (!resuming_.empty()) {
    const std::unique_ptr<Resuming> owned = std::move(resuming_.begin()->second);
    resuming_.erase(resuming_.begin());
    owned->exchange.set_observer(nullptr);
    refuse(owned->exchange, *owned->job, error.clone());
  }
}

/// Null for answers that no other frontend could go on with.
std::unique_ptr<StreamGate> ShardService::open_gate(net::HttpExchange& exchange,
                                                    const GenerationPlan& plan,
                                                    const PrepareJob& job,
                                                    std::optional<Active::Copy>& copy) {
  if (copies_ == nullptr || !plan.answer.stream || plan.prompt_logprobs) {
    return nullptr;
  }
  const continuity::StreamId stream = draw_stream_id();
  const auto holder = environment_.journals->choose_holder(stream);
  copy = {.serial = ++last_copy_, .own = stream, .stream = stream, .holder = holder};
  return std::make_unique<StreamGate>(
      exchange, EventId{.stream = stream,
                        .holder = holder.value_or(environment_.journals->own_id()),
                        .event = job.resumed == nullptr ? 0 : job.resumed->first_event});
}

void ShardService::begin_copy(Active& active, const Active::Copy& copy, const PrepareJob& job) {
  active.copy = copy;
  copied_.emplace(copy.serial, &active);
  active.gate->begin_step();
  const bool under_way =
      bring(active, Place::kBegin,
            continuity::encode(continuity::StreamJournal::Header{.request_hash = job.request_hash,
                                                                 .request_id = job.request_id,
                                                                 .created = job.wall_now}));
  active.gate->end_step(under_way ? StreamGate::Copied::kUnderWay : StreamGate::Copied::kNothing);
}

/// A part of the journal goes to where it is kept. True: it is under way to another process.
bool ShardService::bring(Active& active, Place place, std::string data) {
  Active::Copy& copy = *active.copy;
  if (place == Place::kBegin || copy.kept) {
    copy.kept =
        environment_.journals->keep({.stream = copy.own, .place = place, .data = data}).has_value();
  }
  if (copy.holder) {
    copies_->append(*copy.holder, copy.serial,
                    {.stream = copy.stream, .place = place, .data = std::move(data)});
    return true;
  }
  if (!copy.kept) {
    lose_last_copy(active);
  }
  return false;
}

void ShardService::lose_last_copy(Active& active) {
  log::warn("frontend",
            "a stream goes on without a copy of its journal (frontend.journal_bytes_max)",
            {{"request_id", active.generation.plan().answer.request_id}});
  copied_.erase(active.copy->serial);
  active.copy.reset();
  active.gate->give_up();
}

/// What was accepted of a delta is brought to the copy. False: there is none, or nothing to bring.
bool ShardService::copy_step(Active& active, const Choice& choice, const engine::Delta& delta,
                             const engine::StepOutput& output, uint32_t known_tokens) {
  const uint32_t fresh = choice.journal.generated() - known_tokens;
  if (!active.copy || (fresh == 0 && delta.finish == api::FinishReason::kNone)) {
    return false;
  }
  engine::StepOutput step;
  const auto tokens = output.tokens_of(delta).last(fresh);
  const auto logprobs = output.logprobs_of(delta);
  step.tokens.assign(tokens.begin(), tokens.end());
  step.logprobs.assign(logprobs.end() - std::min<ptrdiff_t>(fresh, std::ssize(logprobs)),
                       logprobs.end());
  step.deltas.push_back({.key = {RequestId(choice.index), Attempt()},
                         .offset = known_tokens,
                         .token_count = fresh,
                         .cached_tokens = delta.cached_tokens,
                         .finish = delta.finish,
                         .stopped_by_token = delta.stopped_by_token});
  return bring(active, Place::kEnd, continuity::encode(step));
}

void ShardService::on_copied(StreamCopies::Serial serial) {
  const auto known = copied_.find(serial);
  if (known == copied_.end()) {
    return;
  }
  Active& active = *known->second;
  Active::Copy& copy = *active.copy;
  if (copy.catching_up > 0) {
    if (--copy.catching_up == 0) {
      active.gate->rename(copy.stream, *copy.holder);
      copy.losses = 0;
      metrics_.copies_renewed.add();
    }
    return;
  }
  active.gate->confirm();
  if (active.gate->done()) {
    release(active, "");
  }
}

void ShardService::on_copy_lost(StreamCopies::Serial serial) {
  const auto known = copied_.find(serial);
  if (known == copied_.end()) {
    return;
  }
  Active& active = *known->second;
  metrics_.copies_lost.add();
  Active::Copy& copy = *active.copy;
  if (copy.kept) {
    copied_.erase(known);
    copy.serial = ++last_copy_;  // what else is said of the old one is no news
    copied_.emplace(copy.serial, &active);
    copy.holder.reset();
    copy.catching_up = 0;
    copy.renew_at =
        shard_.now() + std::min(kRenewMax, kRenewMin * (1U << std::min(copy.losses, 8U)));
    ++copy.losses;
    active.gate->fall_back(copy.own, environment_.journals->own_id());
  } else {
    lose_last_copy(active);
  }
  if (active.gate->done()) {
    release(active, "");
  }
}

/// Streams whose journal is only here get a copy elsewhere as soon as somebody is there to keep it.
/// Others wait for the next time, so that what is brought at once is soon acknowledged.
void ShardService::renew_copies(TimePoint now) {
  std::vector<StreamCopies::Serial> due;
  for (const auto& [serial, active] : copied_) {
    const Active::Copy& copy = *active->copy;
    if (!copy.holder && copy.kept && now >= copy.renew_at) {
      due.push_back(serial);
    }
  }
  std::ranges::sort(due);
  size_t bytes = 0;
  for (const StreamCopies::Serial serial : due) {
    Active::Copy& copy = *copied_.at(serial)->copy;
    // A name of its own: a late message for the lost copy must not get into this one.
    const continuity::StreamId stream = draw_stream_id();
    const auto holder = environment_.journals->choose_holder(stream);
    if (!holder || bytes > kRenewBytesMax) {
      break;
    }
    std::vector<std::string> parts = environment_.journals->kept(copy.own);
    if (parts.empty()) {  // quiet for longer than frontend.journal_keep
      copy.kept = false;
      continue;
    }
    copy.stream = stream;
    copy.holder = holder;
    Place place = Place::kBegin;
    for (std::string& part : parts) {
      bytes += part.size();
      ++copy.catching_up;
      copies_->append(*holder, serial, {.stream = stream, .place = place, .data = std::move(part)});
      place = Place::kEnd;
    }
  }
  if (copies_ != nullptr) {
    copies_->flush();
  }
}

/// Brings a generation to where its journal ends. False: it has failed.
bool ShardService::replay(Active& active, const continuity::StreamJournal& journal) {
  std::vector<Choice>& choices = active.generation.choices();
  for (const engine::StepOutput& step : journal.steps) {
    engine::Delta delta = step.deltas.front();
    const uint64_t index = delta.key.request.value();
    Progress progress = Progress::kBroken;
    if (index < choices.size()) {
      delta.key = choices[index].key();
      progress = advance(active, choices[index], delta, step);
    }
    if (progress == Progress::kBroken || progress == Progress::kStale) {
      metrics_.resume_failures.add();
      fail(active, Error(Code::kCorrupt, "the journal of this stream makes no sense"));
      return false;
    }
    if (progress != Progress::kRunning) {
      choices_.erase(choices[index].id);
    }
  }
  metrics_.resumed_streams.add();
  copies_->flush();
  return true;
}

/// Sends every choice that has not ended to a worker: new ones, and those whose frontend is lost.
void ShardService::go_on(Active& active) {
  if (active.generation.all_finished()) {
    complete(active);
    return;
  }
  for (uint32_t i = 0; i < active.generation.choices().size(); ++i) {
    Choice& choice = active.generation.choices()[i];
    if (choice.finished) {
      continue;
    }
    if (choice.journal.generated() > 0) {
      lose_at({&active, i}, {}, continuity::Loss::kHandedOff,
              Error(Code::kUnavailable, "the frontend of this stream was lost, retry"));
      if (!active_.contains(&active)) {
        return;
      }
    } else if (Status sent = dispatch(active, choice); !sent) {
      fail(active, std::move(sent.error()));
      return;
    }
  }
}

}  // namespace stator::frontend
