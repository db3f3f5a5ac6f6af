// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/router_group.h"

#include <utility>

#include "stator/router/index/index_service.h"
#include "stator/router/replica_log.h"
#include "stator/router/replica_view.h"

namespace stator::simulator {
namespace {

class LogAnnouncer final : public router::LoadAnnouncer {
 public:
  explicit LogAnnouncer(router::ReplicaLog& log) : log_(log) {}
  uint64_t booked(const router::Booking& booking) override {
    return log_.add({.worker = booking.worker,
                     .prompt_tokens = booking.prompt_tokens,
                     .prefill_tokens = booking.prefill_tokens,
                     .block_size = booking.block_size,
                     .expected_output_tokens = booking.expected_output_tokens,
                     .sequences = {booking.prompt.begin(), booking.prompt.end()}});
  }
  void prefill_completed(uint64_t number) override { log_.mark_prefill_completed(number); }
  void freed(uint64_t number) override { log_.free(number); }

 private:
  router::ReplicaLog& log_;
};

/// Another replica's index: equal ones would hold the same, and be written as often.
class BorrowedIndex final : public router::KvIndex {
 public:
  explicit BorrowedIndex(const router::KvIndex& owner) : owner_(owner) {}
  const std::atomic<router::Trust>* trust_of(WorkerKey worker) const override {
    return owner_.trust_of(worker);
  }
  router::Applied apply(WorkerKey /*worker*/, const kv::KvEvent& /*event*/) override {
    return router::Applied::kNotFollowed;
  }
  void remove_worker(WorkerKey /*worker*/) override {}
  void find_longest_match(std::span<const blocks::SequenceHash> sequences,
                          std::vector<router::Overlap>& out) const override {
    owner_.find_longest_match(sequences, out);
  }
  uint64_t holder_blocks() const override { return owner_.holder_blocks(); }

 private:
  const router::KvIndex& owner_;
};

}  // namespace

struct RouterGroup::Replica {
  explicit Replica(uint64_t id) : log(id) {}
  router::Router& router() { return dispatcher->router(); }

  std::optional<router::LoadLease> book_heard(const router::ReplicaBooking& booking) {
    const auto slot = router().load_slot(booking.worker);
    return slot ? std::optional(book->take(router::booking_of(booking, *slot))) : std::nullopt;
  }

  router::ReplicaLog log;
  std::shared_ptr<router::LoadBook> book;  // shared with leases
  std::unique_ptr<router::Dispatcher> dispatcher;
  struct Heard {
    const router::ReplicaLog& of;
    router::ReplicaView view;
  };
  std::vector<std::unique_ptr<Heard>> others;
};

RouterGroup::RouterGroup(Duration interval) : interval_(interval) {}
RouterGroup::~RouterGroup() = default;

Result<std::unique_ptr<RouterGroup>> RouterGroup::create(uint32_t replicas,
                                                         const router::RouterConfig& config,
                                                         uint64_t seed, const Clock& clock,
                                                         Tiers tiers) {
  constexpr uint32_t kReplicasMax = 256;
  if (replicas == 0 || replicas > kReplicasMax || config.replicas.interval <= Duration::zero()) {
    return Error(Code::kInvalidArgument,
                 "there are 1 to 256 routers, and time between two of their questions");
  }
  STATOR_TRY(const router::QueueOrder order, router::parse_queue_order(config.queue.order));
  std::unique_ptr<RouterGroup> group(new RouterGroup(config.replicas.interval));
  for (uint32_t i = 0; i < replicas; ++i) {
    auto replica = std::make_unique<Replica>(i + 1);
    replica->book = router::LoadBook::make(clock);
    std::unique_ptr<router::KvIndex> index;  // null: one of its own
    if (replicas > 1) {
      replica->book->announce_to(std::make_shared<LogAnnouncer>(replica->log));
    }
    if (tiers == Tiers::kAll && i == 0) {
      STATOR_TRY(index, router::IndexService::create(config.index, clock, group->metrics_));
    }
    if (i > 0) {
      index = std::make_unique<BorrowedIndex>(group->replicas_.front()->router().index());
    }
    STATOR_TRY(auto router,
               router::Router::create(config, replica->book, Random(seed + i), std::move(index)));
    router->set_load_stale(replicas > 1);
    replica->dispatcher = std::make_unique<router::Dispatcher>(std::move(router), order);
    group->replicas_.push_back(std::move(replica));
  }
  for (const auto& hearer : group->replicas_) {
    for (const auto& teller : group->replicas_) {
      if (hearer != teller) {
        hearer->others.push_back(std::unique_ptr<Replica::Heard>(new Replica::Heard{
            teller->log, router::ReplicaView(
                             [&hearer = *hearer](const router::ReplicaBooking& booking) {
                               return hearer.book_heard(booking);
                             },
                             Duration::max())}));
      }
    }
  }
  return group;
}

void RouterGroup::add_worker(WorkerKey worker, const router::WorkerFacts& facts) {
  for (const auto& replica : replicas_) {
    replica->router().add_worker(worker, facts);
  }
}

void RouterGroup::remove_worker(WorkerKey worker) {
  for (const auto& replica : replicas_) {
    replica->router().remove_worker(worker);
  }
}

void RouterGroup::set_draining(WorkerKey worker, bool draining) {
  for (const auto& replica : replicas_) {
    replica->router().set_draining(worker, draining);
  }
}

void RouterGroup::apply(WorkerKey worker, const kv::KvEvent& event) {
  replicas_.front()->router().apply(worker, event);
}

Result<std::variant<router::Decision, RouterGroup::Id>> RouterGroup::submit(
    const router::RouteRequest& request, const router::QueueHints& hints, WallTime wall) {
  const size_t replica = turn_++ % replicas_.size();
  STATOR_TRY(auto submitted, replicas_[replica]->dispatcher->submit(request, hints, wall));
  if (Id* const id = std::get_if<Id>(&submitted)) {
    *id = group_id(*id, replica);
  }
  return submitted;
}

std::optional<RouterGroup::Outcome> RouterGroup::next(TimePoint now, WallTime wall) {
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (auto outcome = replicas_[i]->dispatcher->next(now, wall)) {
      outcome->id = group_id(outcome->id, i);
      return outcome;
    }
  }
  return std::nullopt;
}

std::vector<RouterGroup::Outcome> RouterGroup::expire(TimePoint now) {
  std::vector<Outcome> late;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    for (Outcome& outcome : replicas_[i]->dispatcher->expire(now)) {
      outcome.id = group_id(outcome.id, i);
      late.push_back(std::move(outcome));
    }
  }
  return late;
}

bool RouterGroup::remove(Id id) {
  return replicas_[id % replicas_.size()]->dispatcher->remove(id / replicas_.size());
}

uint64_t RouterGroup::told() const {
  uint64_t told = 0;
  for (const auto& replica : replicas_) {
    told += replica->log.sequence();
  }
  return told;
}

std::optional<TimePoint> RouterGroup::next_sync() const {
  return told() == synced_ ? std::nullopt : std::optional(synced_at_ + interval_);
}

void RouterGroup::sync(TimePoint now) {
  for (const auto& replica : replicas_) {
    for (const auto& other : replica->others) {
      do {
        other->view.take(other->of.read(other->view.next_request()), now);
      } while (other->view.next_request() != other->of.sequence());
      other->view.place_waiting();
    }
  }
  synced_at_ = now;
  synced_ = told();
}

int64_t RouterGroup::booked() const {
  int64_t booked = 0;
  for (const auto& replica : replicas_) {
    booked += replica->router().active_requests();
  }
  return booked;
}

}  // namespace stator::simulator
