// SPDX-License-Identifier: Apache-2.0
#include "stator/request/recovery.h"

#include <fmt/format.h>

#include <algorithm>

namespace stator::request {
namespace {

using continuity::Journal;
using continuity::Loss;

// V1.
constexpr size_t kRetriesMin = 10;
constexpr size_t kRetriesPart = 5;
// A worker may compute a long prompt for a while without a word.
constexpr int kFirstTokenPatience = 4;

bool late(TimePoint since, Duration limit, TimePoint now) {
  return limit > Duration::zero() && now - since >= limit;
}

}  // namespace

std::string_view describe(Loss loss) {
  switch (loss) {
    case Loss::kRefused:
      return "it took nothing new";
    case Loss::kHandedOff:
      return "it drains";
    case Loss::kFailed:
      return "its engine failed";
    case Loss::kStalled:
      return "it went silent";
    case Loss::kVanished:
      return "its connection broke";
  }
  return "";
}

RetryPlace& RetryPlace::operator=(RetryPlace&& other) noexcept {
  if (this != &other) {
    release();
    owner_ = std::exchange(other.owner_, nullptr);
  }
  return *this;
}

void RetryPlace::release() noexcept {
  if (Recovery* owner = std::exchange(owner_, nullptr)) {
    --owner->moving_;
  }
}

bool Recovery::is_poison(const Journal& journal) const {
  return limits_.poison_workers > 0 && journal.workers_killed() >= limits_.poison_workers;
}

Journal::Step Recovery::judge(Journal& journal, Loss loss, WorkerKey culprit) const {
  const Journal::Step step = journal.lose(loss, culprit);
  return step == Journal::Step::kResubmit && is_poison(journal) ? Journal::Step::kGiveUp : step;
}

/// A new request asks round quickly; one that has something to lose does not press those who are
/// full.
Duration Recovery::backoff(const Journal& journal, Loss loss, bool moving) {
  const bool pressed = loss == Loss::kRefused && moving;
  return continuity::migration_backoff(pressed ? journal.refusals() + 1 : journal.migrations(),
                                       random_);
}

std::optional<RetryPlace> Recovery::take_place(const Journal& journal) {
  if (journal.migrations() < 2) {
    return RetryPlace();
  }
  if (moving_ >= std::max(kRetriesMin, running_ / kRetriesPart)) {
    return std::nullopt;
  }
  ++moving_;
  return RetryPlace(*this);
}

bool Recovery::has_patience(const std::optional<LostWorker>& lost, TimePoint now) const {
  return lost && now - lost->at < limits_.migration_wait;
}

std::optional<std::string> Recovery::stalled(const Signs& signs, TimePoint now) const {
  const uint64_t worker = signs.worker.value();
  const TimePoint own = std::max(signs.submitted, signs.last_token);
  if (!signs.accepted && late(signs.submitted, limits_.accept_timeout, now)) {
    return fmt::format(
        "worker {} neither took nor refused the request within frontend.accept_timeout, retry",
        worker);
  }
  if (late(own, limits_.stream_idle_timeout, now)) {
    return fmt::format("worker {} produced no token within frontend.stream_idle_timeout, retry",
                       worker);
  }
  const TimePoint any = signs.heard ? std::max(own, *signs.heard) : own;
  const int patience = signs.fresh ? kFirstTokenPatience : 1;
  if (late(any, limits_.stall_timeout * patience, now)) {
    return fmt::format("worker {} went silent for longer than frontend.stall_timeout, retry",
                       worker);
  }
  return std::nullopt;
}

bool Recovery::prompt_stalled(TimePoint asked, std::optional<TimePoint> heard,
                              TimePoint now) const {
  return late(heard ? std::max(asked, *heard) : asked, limits_.stall_timeout * kFirstTokenPatience,
              now);
}

}  // namespace stator::request
