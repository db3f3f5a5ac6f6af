// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/etcd_view.h"

#include <algorithm>
#include <set>

#include "stator/core/log.h"

namespace stator::discovery {
namespace {

constexpr std::string_view kLogTarget = "discovery";

}  // namespace

void EtcdView::trust(Known& known) {
  doubtful_ -= known.doubted_since ? 1 : 0;
  known.doubted_since.reset();
}

void EtcdView::put(const Entry& entry) {
  if (!entry.key.starts_with(options_.prefix)) {
    return;
  }
  Known& known = known_.try_emplace(std::string(entry.key)).first->second;
  trust(known);
  if (known.value == entry.value) {
    return;
  }
  known.value = entry.value;
  auto record = parse_instance_record(entry.value);
  if (record && entry.key.substr(options_.prefix.size()) != record->key.to_string()) {
    record = Error(Code::kCorrupt, "it names another instance than its key");
  }
  if (!record) {
    ++bad_records_;
    log::warn(kLogTarget, "bad record, keeping its previous value",
              {{"key", entry.key}, {"error", record.error().message()}});
    return;
  }
  known.record = std::make_shared<const InstanceRecord>(std::move(*record));
  changes_.push_back({known.record->key, known.record});
}

EtcdView::KnownMap::iterator EtcdView::forget(KnownMap::iterator known) {
  trust(known->second);
  if (known->second.record != nullptr) {
    changes_.push_back({known->second.record->key, nullptr});
  }
  return known_.erase(known);
}

void EtcdView::remove(std::string_view key) {
  const auto found = known_.find(key);
  if (found != known_.end()) {
    forget(found);
  }
}

void EtcdView::resync(Position position, std::span<const Entry> entries, TimePoint now) {
  position_ = position;
  std::set<std::string_view> told;
  for (const Entry& entry : entries) {
    put(entry);
    told.insert(entry.key);
  }
  size_t lacking = 0;
  for (const auto& [key, known] : known_) {
    lacking += told.contains(key) ? 0 : 1;
  }
  const bool doubt = lacking * 2 > known_.size();
  for (auto at = known_.begin(); at != known_.end();) {
    Known& known = at->second;
    if (told.contains(at->first)) {
      ++at;
    } else if (doubt && known.record != nullptr) {
      doubtful_ += known.doubted_since ? 0 : 1;
      known.doubted_since = known.doubted_since.value_or(now);
      known.value.clear();
      ++at;
    } else {
      at = forget(at);
    }
  }
}

bool EtcdView::expire(TimePoint now) {
  if (doubtful_ == 0) {
    return false;
  }
  const size_t before = known_.size();
  for (auto at = known_.begin(); at != known_.end();) {
    const auto& since = at->second.doubted_since;
    if (since && now - *since >= options_.doubt_time) {
      at = forget(at);
    } else {
      ++at;
    }
  }
  return known_.size() != before;
}

std::string_view EtcdView::find(std::string_view key) const {
  const auto found = known_.find(key);
  return found == known_.end() ? std::string_view() : std::string_view(found->second.value);
}

}  // namespace stator::discovery
