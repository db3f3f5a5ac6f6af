// SPDX-License-Identifier: Apache-2.0
#include "stator/router/session_table.h"

#include <algorithm>

namespace stator::router {
namespace {

using namespace std::chrono_literals;

// How often forgotten sessions are looked for; one pass over the table.
constexpr Duration kReapInterval = 30s;

}  // namespace

bool SessionTable::expired(const std::shared_ptr<SessionBinding>& binding, TimePoint now) const {
  // The table's own reference is one; every running request has another.
  if (binding.use_count() > 1) {
    return false;
  }
  const TimePoint idle_since(Duration(binding->idle_since_ns.load(std::memory_order_relaxed)));
  return now - idle_since > config_.ttl;
}

std::shared_ptr<SessionBinding> SessionTable::find(std::string_view session, TimePoint now) const {
  const auto known = bindings_.find(session);
  if (known == bindings_.end() || known->second->failed.load(std::memory_order_relaxed) ||
      expired(known->second, now)) {
    return nullptr;
  }
  return known->second;
}

bool SessionTable::forget(std::string_view session) {
  const auto known = bindings_.find(session);
  if (known == bindings_.end()) {
    return false;
  }
  bindings_.erase(known);
  return true;
}

void SessionTable::reap(TimePoint now) {
  if (now - reaped_ < std::min(config_.ttl, kReapInterval)) {
    return;
  }
  reaped_ = now;
  absl::erase_if(bindings_, [&](const auto& entry) { return expired(entry.second, now); });
}

std::shared_ptr<SessionBinding> SessionTable::bind(std::string_view session, WorkerKey worker,
                                                   TimePoint now) {
  reap(now);
  const bool is_new = !bindings_.contains(session);
  if (session.size() > kIdBytesMax || (is_new && bindings_.size() >= config_.sessions_max)) {
    ++refused_;
    return nullptr;
  }
  auto binding = std::make_shared<SessionBinding>();
  binding->worker = worker;
  binding->idle_since_ns = now.time_since_epoch().count();
  bindings_[std::string(session)] = binding;
  return binding;
}

}  // namespace stator::router
