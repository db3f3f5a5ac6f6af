// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/status_pace.h"

#include <string_view>

#include "stator/kube/object.h"

namespace stator::op {
namespace {

using json::Value;

const Value* find_condition(const Value* status, std::string_view type) {
  const Value* conditions = status == nullptr ? nullptr : status->find("conditions");
  if (conditions == nullptr) {
    return nullptr;
  }
  for (const Value& condition : conditions->elements()) {
    if (condition.text_at({"type"}) == type) {
      return &condition;
    }
  }
  return nullptr;
}

bool has_moved(const Value* before, const Value& condition) {
  const std::string_view now = condition.text_at({"status"});
  const Value* old = find_condition(before, condition.text_at({"type"}));
  if (old == nullptr) {
    return now == "True" || condition.text_at({"reason"}) == "InvalidSpec";
  }
  const bool is_other_mistake = condition.text_at({"reason"}) == "InvalidSpec" &&
                                old->text_at({"message"}) != condition.text_at({"message"});
  return old->text_at({"status"}) != now || is_other_mistake;
}

int64_t generation_in(const Value& status) {
  return kube::int_at(status, {"observedGeneration"}, 0);
}

/// Ready, or available: nothing is on its way.
bool is_settled(const Value& status) {
  for (const std::string_view type : {"Ready", "Available"}) {
    const Value* condition = find_condition(&status, type);
    if (condition != nullptr && condition->text_at({"status"}) == "True") {
      return true;
    }
  }
  return false;
}

}  // namespace

bool is_stored_status(const Value& object, const Value& status) {
  const Value* before = object.find("status");
  return before != nullptr && kube::same(*before, status);
}

bool is_news(const Value* before, const Value& after) {
  if (before != nullptr && is_settled(after) && generation_in(*before) != generation_in(after)) {
    return true;  // a change that is done
  }
  if (const Value* conditions = after.find("conditions")) {
    for (const Value& condition : conditions->elements()) {
      if (has_moved(before, condition)) {
        return true;
      }
    }
  }
  const auto text = [](const Value* status, std::initializer_list<std::string_view> path) {
    return status == nullptr ? std::string_view() : status->text_at(path);
  };
  const std::string_view state = text(&after, {"state"});
  if (state != text(before, {"state"}) && (before != nullptr || state != "pending")) {
    return true;
  }
  if (text(&after, {"message"}) != text(before, {"message"}) ||
      text(&after, {"restartedAt"}) != text(before, {"restartedAt"})) {
    return true;
  }
  for (const std::string_view part : {"rollingUpdate", "restart"}) {
    if (text(&after, {part, "phase"}) != text(before, {part, "phase"}) ||
        text(&after, {part, "observedID"}) != text(before, {part, "observedID"})) {
      return true;
    }
  }
  const Value* old_checkpoints = before == nullptr ? nullptr : before->find("checkpoints");
  const Value* checkpoints = after.find("checkpoints");
  return checkpoints != nullptr &&
         (old_checkpoints == nullptr || !kube::same(*old_checkpoints, *checkpoints));
}

Duration StatusPace::wait(const std::string& key, const Value* before, const Value& after,
                          TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (is_news(before, after)) {
    due_.erase(key);
    return Duration::zero();
  }
  const auto [due, is_new] = due_.emplace(key, now + (before == nullptr ? kFirst : kCounts));
  if (!is_new && due->second <= now) {
    due_.erase(due);
    return Duration::zero();
  }
  return due->second - now;
}

void StatusPace::forget(const std::string& key) {
  const std::lock_guard lock(mutex_);
  due_.erase(key);
}

void NewestStatuses::overlay(Value& object) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(kube::name_of(object).to_string());
  if (found != entries_.end() && found->second.uid == kube::uid_of(object)) {
    object["status"] = found->second.status;
  }
}

bool NewestStatuses::remember(const Value& object, const Value& status) {
  const std::lock_guard lock(mutex_);
  const std::string uid(kube::uid_of(object));
  const auto [found, is_new] =
      entries_.try_emplace(kube::name_of(object).to_string(), Entry{uid, status});
  if (!is_new && found->second.uid == uid && kube::same(found->second.status, status)) {
    return false;
  }
  found->second = {uid, status};
  return true;
}

void NewestStatuses::forget(const std::string& key) {
  const std::lock_guard lock(mutex_);
  entries_.erase(key);
}

}  // namespace stator::op
