// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "stator/json/value.h"

namespace stator::fake_engine {
namespace {

struct Name {
  std::string_view name;
  FaultKind kind;
};
constexpr std::array kNames{
    Name{"hang", FaultKind::kHang},
    Name{"die", FaultKind::kDie},
    Name{"restart", FaultKind::kRestart},
    Name{"close", FaultKind::kClose},
    Name{"slow", FaultKind::kSlow},
    Name{"status", FaultKind::kStatus},
    Name{"garbage", FaultKind::kGarbage},
    Name{"drop_events", FaultKind::kDropEvents},
    Name{"lose_events", FaultKind::kLoseEvents},
    Name{"duplicate_events", FaultKind::kDuplicateEvents},
    Name{"reorder_events", FaultKind::kReorderEvents},
    Name{"restart_sequence", FaultKind::kRestartSequence},
    Name{"block_size", FaultKind::kBlockSize},
    Name{"mute_replay", FaultKind::kMuteReplay},
    Name{"delay_replay", FaultKind::kDelayReplay},
    Name{"expire_handoffs", FaultKind::kExpireHandoffs},
};

bool is_about_requests(FaultKind kind) {
  return kind >= FaultKind::kHang && kind <= FaultKind::kGarbage;
}

bool is_about_batches(FaultKind kind) {
  return kind >= FaultKind::kDropEvents && kind <= FaultKind::kReorderEvents;
}

/// Faults in the middle of an answer only make sense where tokens are generated.
bool concerns(const Fault& fault, std::string_view path) {
  constexpr std::array<std::string_view, 6> kGenerating{
      "/v1/completions", "/v1/chat/completions", "/inference/v1/generate",
      "/generate",       "/completion",          "/completions"};
  if (!fault.path.empty()) {
    return fault.path == path;
  }
  return fault.kind == FaultKind::kStatus || fault.kind == FaultKind::kGarbage ||
         std::ranges::find(kGenerating, path) != kGenerating.end();
}

Error refuse(std::string_view member, std::string_view what) {
  return Error(Code::kInvalidArgument, fmt::format("fault: '{}' {}", member, what));
}

std::string list_names() {
  std::string out;
  for (const Name& name : kNames) {
    out += out.empty() ? "" : ", ";
    out += name.name;
  }
  return out;
}

/// Whole numbers, each with the member it fills.
Status read_number(std::string_view key, const json::Value& value, Fault& fault) {
  const auto whole = value.as_uint64();
  if (!whole || *whole > UINT32_MAX) {
    return refuse(key, "must be a whole number of at least 0");
  }
  const auto number = static_cast<uint32_t>(*whole);
  if (key == "after_tokens") {
    fault.after_tokens = number;
  } else if (key == "skip") {
    fault.skip = number;
  } else if (key == "times") {
    fault.times = number;
  } else if (key == "every") {
    fault.every = number;
  } else if (key == "value") {
    fault.value = number;
  } else if (key == "delay_ms") {
    fault.delay = std::chrono::milliseconds(number);
  } else if (key == "status" && number >= 400 && number <= 599) {
    fault.status = static_cast<int>(number);
  } else {
    return refuse(key, key == "status" ? "must be 400 to 599" : "is unknown");
  }
  return {};
}

}  // namespace

std::string_view name_of(FaultKind kind) {
  const auto* found = std::ranges::find(kNames, kind, &Name::kind);
  return found == kNames.end() ? "none" : found->name;
}

Result<Fault> parse_fault(std::string_view text) {
  const auto value = json::parse(text);
  if (!value || !value->is_object()) {
    return Error(Code::kInvalidArgument, "a fault is a JSON object with the member 'kind'");
  }
  Fault fault;
  for (const auto& [key, member] : value->members()) {
    if (key == "kind" || key == "path") {
      if (!member.is_string()) {
        return refuse(key, "must be a string");
      }
      if (key == "path") {
        fault.path = member.text();
        continue;
      }
      const auto* found = std::ranges::find(kNames, member.text(), &Name::name);
      if (found == kNames.end()) {
        return refuse(key, fmt::format("must be one of {}", list_names()));
      }
      fault.kind = found->kind;
      continue;
    }
    STATOR_CHECK(read_number(key, member, fault));
  }
  if (fault.kind == FaultKind::kNone) {
    return refuse("kind", fmt::format("must be one of {}", list_names()));
  }
  if (fault.every == 0) {
    return refuse("every", "must be at least 1");
  }
  if (fault.kind == FaultKind::kBlockSize && fault.value == 0) {
    return refuse("value", "must be the announced block size");
  }
  if (fault.kind == FaultKind::kDelayReplay && fault.delay <= Duration::zero()) {
    return refuse("delay_ms", "must be at least 1");
  }
  return fault;
}

Status PendingFaults::add(Fault fault) {
  if (faults_.size() >= kFaultsMax) {
    return Error(Code::kOverloaded,
                 fmt::format("{} faults wait already; DELETE /fault first", kFaultsMax));
  }
  faults_.push_back(std::move(fault));
  return {};
}

Fault PendingFaults::take_for_request(std::string_view path) {
  for (auto it = faults_.begin(); it != faults_.end(); ++it) {
    if (!is_about_requests(it->kind) || !concerns(*it, path)) {
      continue;
    }
    if (it->skip > 0) {
      --it->skip;
      continue;
    }
    Fault hit = *it;
    if (it->times == 1) {
      faults_.erase(it);
    } else if (it->times > 1) {
      --it->times;
    }
    return hit;
  }
  return {};
}

PendingFaults::Batch PendingFaults::take_for_batch() {
  ++batches_;
  for (auto it = faults_.begin(); it != faults_.end(); ++it) {
    if (!is_about_batches(it->kind) || batches_ % it->every != 0) {
      continue;
    }
    const FaultKind kind = it->kind;
    if (it->times == 1) {
      faults_.erase(it);
    } else if (it->times > 1) {
      --it->times;
    }
    switch (kind) {
      case FaultKind::kDropEvents:
        return Batch::kDrop;
      case FaultKind::kLoseEvents:
        return Batch::kLose;
      case FaultKind::kDuplicateEvents:
        return Batch::kDuplicate;
      default:
        return Batch::kHoldBack;
    }
  }
  return Batch::kSend;
}

bool PendingFaults::take_once(FaultKind kind) {
  const auto found = std::ranges::find(faults_, kind, &Fault::kind);
  if (found == faults_.end()) {
    return false;
  }
  faults_.erase(found);
  return true;
}

uint32_t PendingFaults::block_size() const {
  const auto found = std::ranges::find(faults_, FaultKind::kBlockSize, &Fault::kind);
  return found == faults_.end() ? 0 : found->value;
}

bool PendingFaults::replay_muted() const {
  return std::ranges::find(faults_, FaultKind::kMuteReplay, &Fault::kind) != faults_.end();
}

Duration PendingFaults::replay_delay() const {
  const auto found = std::ranges::find(faults_, FaultKind::kDelayReplay, &Fault::kind);
  return found == faults_.end() ? Duration::zero() : found->delay;
}

}  // namespace stator::fake_engine
