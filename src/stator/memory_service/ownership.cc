// SPDX-License-Identifier: Apache-2.0
#include "stator/memory_service/ownership.h"

#include <algorithm>
#include <utility>

namespace stator::memory_service {

Ownership::State Ownership::state() const {
  if (writer_) {
    return State::kWriting;
  }
  if (!readers_.empty()) {
    return State::kReading;
  }
  return committed_ ? State::kCommitted : State::kEmpty;
}

std::string_view to_string(Ownership::State state) {
  switch (state) {
    case Ownership::State::kEmpty:
      return "EMPTY";
    case Ownership::State::kWriting:
      return "RW";
    case Ownership::State::kCommitted:
      return "COMMITTED";
    case Ownership::State::kReading:
      return "RO";
  }
  return "";
}

/// True: as a writer; false: as a reader; nothing: not now.
std::optional<bool> Ownership::may(Mode mode) const {
  if (writer_) {
    return std::nullopt;
  }
  const bool wants_read = mode == Mode::kRead || (mode == Mode::kWriteOrRead && committed_);
  if (wants_read) {
    return committed_ ? std::optional(false) : std::nullopt;
  }
  return readers_.empty() ? std::optional(true) : std::nullopt;
}

void Ownership::begin(ClientId client, bool writes) {
  if (writes) {
    writer_ = client;
    committed_ = false;
    cleared_ = true;  // O2
  } else {
    readers_.insert(client);
  }
}

Ownership::Answer Ownership::connect(ClientId client, Mode mode) {
  if (waiting_.size() >= kWaitingMax) {
    return Answer::kRefused;
  }
  waiting_.push_back({.client = client, .mode = mode});
  let_in();
  const auto granted = std::ranges::find(granted_, client, &Granted::client);
  if (granted == granted_.end()) {
    return Answer::kWaits;
  }
  const bool writes = granted->writes;
  granted_.erase(granted);
  return writes ? Answer::kWriter : Answer::kReader;
}

bool Ownership::commit(ClientId client, bool stays) {
  if (writer_ != client) {
    return false;
  }
  writer_.reset();
  committed_ = true;
  if (stays) {
    readers_.insert(client);
  }
  let_in();
  return true;
}

void Ownership::disconnect(ClientId client) {
  std::erase_if(waiting_, [&](const Waiting& one) { return one.client == client; });
  readers_.erase(client);
  if (writer_ == client) {
    writer_.reset();
    cleared_ = true;  // O2: it did not commit
  }
  let_in();
}

void Ownership::let_in() {
  for (size_t i = 0; i < waiting_.size();) {
    const Waiting one = waiting_[i];
    const std::optional<bool> allowed = may(one.mode);
    const bool writer_before =
        std::any_of(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(i),
                    [](const Waiting& other) { return other.mode == Mode::kWrite; });
    if (!allowed || writer_before) {
      ++i;
      continue;
    }
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    begin(one.client, *allowed);
    granted_.push_back({.client = one.client, .writes = *allowed});
  }
}

std::vector<Ownership::Granted> Ownership::take_granted() {
  return std::exchange(granted_, {});
}

bool Ownership::take_cleared() {
  return std::exchange(cleared_, false);
}

}  // namespace stator::memory_service
