// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/routable_marks.h"

#include <chrono>

#include "stator/core/log.h"
#include "stator/kube/lease.h"
#include "stator/kube/object.h"

namespace stator::discovery {
namespace {

using json::Value;
using namespace std::chrono_literals;

constexpr Duration kRetryPause = 1s;

}  // namespace

bool is_gated(const Value& pod) {
  const Value* gates = pod.find_at({"spec", "readinessGates"});
  if (gates == nullptr) {
    return false;
  }
  for (const Value& gate : gates->elements()) {
    if (gate.text_at({"conditionType"}) == kRoutable) {
      return true;
    }
  }
  return false;
}

bool is_routable(const Value& pod) {
  const Value* conditions = pod.find_at({"status", "conditions"});
  if (conditions == nullptr) {
    return false;
  }
  for (const Value& condition : conditions->elements()) {
    if (condition.text_at({"type"}) == kRoutable) {
      return condition.text_at({"status"}) == "True";
    }
  }
  return false;
}

Value routable_mark(const Value& pod, const std::string& now) {
  Value mark = kube::make_object(kube::resource_of("Pod"), kube::name_of(pod));
  mark["metadata"]["uid"] = kube::uid_of(pod);  // another pod of this name is refused
  Value condition = Value::object();
  condition["type"] = kRoutable;
  condition["status"] = "True";
  condition["reason"] = "KnownToAFrontend";
  condition["message"] = "a frontend sends requests to this worker";
  condition["lastTransitionTime"] = now;
  mark["status"]["conditions"].push_back(std::move(condition));
  return mark;
}

RoutableMarks::RoutableMarks(kube::Client& client, const Clock& clock)
    : client_(client), clock_(clock), thread_("routable", [this] { run(); }) {}

RoutableMarks::~RoutableMarks() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void RoutableMarks::add(const Value& pod) {
  const std::lock_guard lock(mutex_);
  waiting_.emplace(kube::uid_of(pod), routable_mark(pod, kube::rfc3339(clock_.wall_now())));
  wake_.notify_all();
}

void RoutableMarks::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (waiting_.empty()) {
      wake_.wait(lock);
      continue;
    }
    auto mark = waiting_.extract(waiting_.begin());
    lock.unlock();
    const auto written = client_.apply(kube::resource_of("Pod"), mark.mapped(),
                                       {.manager = "stator-frontend", .subresource = "status"});
    lock.lock();
    const bool is_gone = !written && (written.error().code() == Code::kNotFound ||
                                      written.error().code() == Code::kAlreadyExists);
    if (written || is_gone || stopping_) {
      continue;
    }
    log::warn("discovery", written.error().message(),
              {{"pod", kube::name_of(mark.mapped()).to_string()}});
    waiting_.insert(std::move(mark));
    wake_.wait_for(lock, kRetryPause, [this] { return stopping_; });
  }
}

}  // namespace stator::discovery
