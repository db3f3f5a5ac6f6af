// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/informer.h"

#include <algorithm>
#include <set>
#include <utility>

#include "stator/core/log.h"

namespace stator::kube {
namespace {

using json::Value;
using namespace std::chrono_literals;

constexpr Duration kBackOffFirst = 200ms;
constexpr Duration kBackOffMax = 10s;
constexpr Duration kUnservedPause = 30s;  // a kind that nobody serves may come with its operator

}  // namespace

Informer::Informer(Client& client, Resource resource, Options options)
    : client_(client),
      resource_(std::move(resource)),
      options_(std::move(options)),
      thread_("kube-" + resource_.plural.substr(0, 10), [this] { run(); }) {}

Informer::~Informer() {
  stopping_.store(true);
  {
    const std::lock_guard lock(wake_mutex_);
    wake_.notify_all();
  }
  thread_.join();
}

bool Informer::pause() {
  std::unique_lock lock(wake_mutex_);
  const Duration time = served_.load() ? back_off_ : kUnservedPause;
  wake_.wait_for(lock, time, [&] { return stopping_.load(); });
  back_off_ = std::min<Duration>(std::max<Duration>(back_off_ * 2, kBackOffFirst), kBackOffMax);
  return !stopping_.load();
}

void Informer::run() {
  std::string version;
  while (!stopping_.load()) {
    if (version.empty()) {
      const Status listed = list_all(version);
      if (!listed) {
        const bool unserved = listed.error().code() == Code::kNotFound;
        served_.store(!unserved);
        if (unserved) {
          become_synced();
        } else if (listed.error().code() != Code::kCancelled) {
          log::warn("kube", listed.error().message(), {{"kind", resource_.kind}});
        }
        version.clear();
        if (!pause()) {
          return;
        }
        continue;
      }
      served_.store(true);
      become_synced();
      back_off_ = Duration::zero();
    }
    auto seen = client_.watch(resource_, options_.selection, version,
                              [this](WatchEvent event) { return on_event(std::move(event)); });
    if (seen) {
      version = std::move(*seen);
      back_off_ = Duration::zero();
      continue;
    }
    if (seen.error().code() == Code::kDraining || seen.error().code() == Code::kNotFound) {
      version.clear();
      continue;
    }
    log::warn("kube", seen.error().message(), {{"kind", resource_.kind}});
    if (!pause()) {
      return;
    }
  }
}

void Informer::become_synced() {
  if (!synced_.exchange(true) && options_.on_synced) {
    options_.on_synced();
  }
}

Status Informer::list_all(std::string& version) {
  std::set<ObjectName> seen;
  auto listed = client_.list(resource_, options_.selection, [&](Value object) -> Status {
    seen.insert(name_of(object));
    put(std::move(object));
    return {};
  });
  if (!listed) {
    return std::move(listed.error());
  }
  version = std::move(*listed);
  std::vector<ObjectName> gone;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, kept] : objects_) {
      if (!seen.contains(name)) {
        gone.push_back(name);
      }
    }
  }
  for (const ObjectName& name : gone) {
    drop(name);
  }
  return {};
}

Status Informer::on_event(WatchEvent event) {
  if (event.type == "DELETED") {
    drop(name_of(event.object));
  } else {
    put(std::move(event.object));
  }
  return {};
}

void Informer::put(Value object) {
  if (Value* metadata = object.find("metadata")) {
    metadata->erase("managedFields");
  }
  if (options_.trim) {
    options_.trim(object);
  }
  const ObjectName name = name_of(object);
  std::string text = json::to_text(object);
  std::string key = options_.index_key ? options_.index_key(object) : "";
  std::string before;
  {
    const std::lock_guard lock(mutex_);
    Kept& kept = objects_[name];
    before = std::exchange(kept.text, text);
    if (options_.index_key && kept.key != key) {
      unindex(name, kept.key);
      index_[key].insert(name);
      kept.key = std::move(key);
    }
  }
  if (options_.on_change && before != text) {
    const auto old =
        !options_.gives_before || before.empty() ? Result<Value>(Value()) : json::parse(before);
    options_.on_change(!old || old->is_null() ? nullptr : &*old, &object);
  }
}

void Informer::drop(const ObjectName& name) {
  std::string before;
  {
    const std::lock_guard lock(mutex_);
    const auto it = objects_.find(name);
    if (it == objects_.end()) {
      return;
    }
    before = std::move(it->second.text);
    unindex(name, it->second.key);
    objects_.erase(it);
  }
  if (options_.on_change) {
    if (const auto old = json::parse(before)) {
      options_.on_change(&*old, nullptr);
    }
  }
}

std::optional<Value> Informer::get(const ObjectName& name) const {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    const auto it = objects_.find(name);
    if (it == objects_.end()) {
      return std::nullopt;
    }
    text = it->second.text;
  }
  auto value = json::parse(text);
  return value ? std::optional(std::move(*value)) : std::nullopt;
}

std::vector<Value> Informer::find(const std::string& space,
                                  const std::function<bool(const Value&)>& wanted) const {
  std::vector<std::string> texts;
  {
    const std::lock_guard lock(mutex_);
    auto it = space.empty() ? objects_.begin() : objects_.lower_bound({space, ""});
    for (; it != objects_.end() && (space.empty() || it->first.space == space); ++it) {
      texts.push_back(it->second.text);
    }
  }
  std::vector<Value> found;
  for (const std::string& text : texts) {
    auto value = json::parse(text);
    if (value && wanted(*value)) {
      found.push_back(std::move(*value));
    }
  }
  return found;
}

void Informer::unindex(const ObjectName& name, const std::string& key) {
  const auto it = index_.find(key);
  if (it != index_.end()) {
    it->second.erase(name);
    if (it->second.empty()) {
      index_.erase(it);
    }
  }
}

std::vector<Value> Informer::find_indexed(const std::string& key) const {
  std::vector<std::string> texts;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = index_.find(key); it != index_.end()) {
      for (const ObjectName& name : it->second) {
        texts.push_back(objects_.at(name).text);
      }
    }
  }
  std::vector<Value> found;
  for (const std::string& text : texts) {
    if (auto value = json::parse(text)) {
      found.push_back(std::move(*value));
    }
  }
  return found;
}

size_t Informer::size() const {
  const std::lock_guard lock(mutex_);
  return objects_.size();
}

}  // namespace stator::kube
