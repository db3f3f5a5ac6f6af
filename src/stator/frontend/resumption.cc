// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/resumption.h"

#include <utility>

#include "stator/core/hash.h"
#include "stator/core/random.h"
#include "stator/frontend/text_routes.h"

namespace stator::frontend {
namespace {

uint64_t hash_of(const PrepareJob& job) {
  uint64_t hash = xxh3_64(job.body) ^ mix64(xxh3_64(job.http.path()));
  for (const std::string_view name : {"authorization", "x-api-key", "x-tenant-id"}) {
    hash = mix64(hash ^ xxh3_64(job.http.header(name).value_or("")));
  }
  return hash;
}

Error unknown_stream() {
  return Error(Code::kNotFound,
               "nobody keeps the stream of this Last-Event-ID for this request (any more, see "
               "frontend.journal_keep); send it without to begin anew");
}

}  // namespace

bool Resumption::begin(net::HttpExchange& exchange, const std::shared_ptr<PrepareJob>& job) {
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
    owner_.on_no_journal(
        exchange, *job,
        Error(Code::kInvalidArgument, "Last-Event-ID must be the id of an event of a stream"));
    return true;
  }
  auto owned = std::make_unique<Waiting>(*this, exchange, job, *last);
  Waiting* const waiting = owned.get();
  waiting_.emplace(waiting, std::move(owned));
  exchange.set_observer(waiting);
  hub_.fetch(last->holder, last->stream, shard_,
             [this, waiting, alive = std::weak_ptr(alive_)](Parts& parts) {
               if (!alive.expired()) {
                 on_fetched(waiting, parts);
               }
             });
  return true;
}

/// Null: it has been answered.
std::unique_ptr<Resumption::Waiting> Resumption::take(Waiting* waiting) {
  const auto known = waiting_.find(waiting);
  if (known == waiting_.end()) {
    return nullptr;
  }
  auto owned = std::move(known->second);
  waiting_.erase(known);
  return owned;
}

void Resumption::on_fetched(Waiting* waiting, Parts& parts) {
  const auto owned = take(waiting);
  if (owned == nullptr) {
    return;
  }
  PrepareJob& job = *owned->job;
  owned->exchange.set_observer(nullptr);
  auto journal = parts ? continuity::decode_journal(*parts)
                       : Result<continuity::StreamJournal>(std::move(parts.error()));
  if (!journal || journal->header.request_hash != job.request_hash) {
    metrics_.resume_failures.add();
    const bool away = !journal && journal.error().code() == Code::kUnavailable;
    owner_.on_no_journal(owned->exchange, job,
                         away ? std::move(journal.error()) : unknown_stream());
    return;
  }
  job.request_id = journal->header.request_id;
  job.wall_now = journal->header.created;
  job.resumed = std::make_shared<const ResumedStream>(
      ResumedStream{.first_event = owned->last.event + 1, .journal = std::move(*journal)});
  owner_.on_journal(owned->exchange, owned->job);
}

void Resumption::client_gone(Waiting& waiting) {
  const auto owned = take(&waiting);
  owner_.on_client_left(*owned->job);
}

void Resumption::fail_all(const Error& error) {
  while (!waiting_.empty()) {
    const auto owned = take(waiting_.begin()->first);
    owned->exchange.set_observer(nullptr);
    owner_.on_no_journal(owned->exchange, *owned->job, error.clone());
  }
}

}  // namespace stator::frontend
