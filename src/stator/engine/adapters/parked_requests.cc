// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/parked_requests.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "stator/core/log.h"

namespace stator::engine::adapters {
namespace {

constexpr std::string_view kLogTarget = "engine::adapter";

}  // namespace

bool ParkedRequests::park(Submit& submit) {
  if (submit.adapter.empty() || submit.adapter_ready || !first_use_.enabled()) {
    return false;
  }
  first_use_.used(submit.adapter);
  if (upkeep_.has_adapter(submit.adapter)) {
    return false;
  }
  auto path = first_use_.find(submit.adapter);
  if (!path) {
    return false;  // the server says so
  }
  std::string name = submit.adapter;
  std::vector<Submit>& waiting = waiting_[name];
  waiting.push_back(std::move(submit));
  if (waiting.size() == 1) {
    load(std::move(name), std::move(*path));
  }
  return true;
}

/// Where the server has enough of them, another one goes before.
void ParkedRequests::load(std::string name, std::string path) {
  auto load_now = [this, name, path = std::move(path)]() mutable {
    upkeep_.control(LoadAdapter{.name = name, .path = std::move(path)},
                    [this, name](Status loaded) { on_loaded(name, std::move(loaded)); });
  };
  const auto victim = first_use_.victim();
  if (!victim) {
    load_now();
    return;
  }
  upkeep_.control(UnloadAdapter{*victim},
                  [this, victim = *victim, load_now = std::move(load_now)](Status gone) mutable {
                    if (!gone) {
                      log::warn(kLogTarget, "an adapter could not be unloaded to make room",
                                {{"name", victim}, {"why", gone.error().message()}});
                    }
                    first_use_.unloaded(victim);
                    load_now();
                  });
}

void ParkedRequests::on_loaded(const std::string& name, Status loaded) {
  auto node = waiting_.extract(name);
  std::vector<Submit> waiting;
  if (!node.empty()) {
    waiting = std::move(node.mapped());
  }
  if (!loaded && loaded.error().code() != Code::kAlreadyExists) {
    log::warn(kLogTarget, "an adapter could not be loaded on first use",
              {{"name", name}, {"url", url_}, {"why", loaded.error().message()}});
    owner_.on_park_failed(
        std::move(waiting),
        std::move(loaded.error()).with_context(fmt::format("loading adapter '{}'", name)));
    return;
  }
  first_use_.loaded(name);
  for (Submit& submit : waiting) {
    submit.adapter_ready = true;
  }
  if (!waiting.empty()) {
    owner_.on_unparked(std::move(waiting));
  }
}

bool ParkedRequests::drop(SessionId session, inference::RequestKey key) {
  for (auto& [name, waiting] : waiting_) {
    if (std::erase_if(waiting, [&](const Submit& submit) {
          return submit.session == session && submit.key == key;
        }) > 0) {
      return true;
    }
  }
  return false;
}

void ParkedRequests::drop_session(SessionId session) {
  for (auto& [name, waiting] : waiting_) {
    std::erase_if(waiting, [&](const Submit& submit) { return submit.session == session; });
  }
}

std::vector<Submit> ParkedRequests::take_all() {
  std::vector<Submit> all;
  for (auto& [name, waiting] : waiting_) {
    std::move(waiting.begin(), waiting.end(), std::back_inserter(all));
    waiting.clear();
  }
  return all;
}

}  // namespace stator::engine::adapters
