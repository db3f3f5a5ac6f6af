// SPDX-License-Identifier: Apache-2.0
#include "stator/continuity/journal_store.h"

namespace stator::continuity {
namespace {

// What a part costs beside its bytes: the string and what the allocator adds.
constexpr uint64_t kPartBytes = 64;

}  // namespace

Status JournalStore::append(StreamId stream, Place place, std::string part, TimePoint now) {
  const bool known = copies_.contains(stream);
  if (known == (place == Place::kBegin)) {
    return known ? Error(Code::kAlreadyExists, "a journal of this stream is here")
                 : Error(Code::kNotFound, "no journal of this stream is here");
  }
  const uint64_t cost = part.size() + kPartBytes;
  if (bytes_ + cost > limits_.bytes_max) {
    if (known) {
      drop(stream);
    }
    return Error(Code::kOverloaded, "no room for journals (frontend.journal_bytes_max)");
  }
  Copy& copy = copies_[stream];
  if (known) {
    by_age_.erase({copy.last, stream});
  }
  copy.parts.push_back(std::move(part));
  copy.bytes += cost;
  copy.last = now;
  by_age_.emplace(now, stream);
  bytes_ += cost;
  return {};
}

std::vector<std::string> JournalStore::read(StreamId stream) const {
  const auto known = copies_.find(stream);
  return known == copies_.end() ? std::vector<std::string>() : known->second.parts;
}

void JournalStore::expire(TimePoint now) {
  while (!by_age_.empty() && now - by_age_.begin()->first > limits_.keep) {
    drop(by_age_.begin()->second);
  }
}

void JournalStore::drop(StreamId stream) {
  const auto known = copies_.find(stream);
  bytes_ -= known->second.bytes;
  by_age_.erase({known->second.last, stream});
  copies_.erase(known);
}

}  // namespace stator::continuity
