// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/opinions.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace stator::planner {
namespace {

template <typename T>
void fill(std::optional<T>& first, const std::optional<T>& later) {
  first = first ? first : later;
}

/// What the opinions make of one pool.
std::optional<uint32_t> merge_pool(bool prefill, bool may_set, std::optional<uint32_t> before,
                                   std::span<const Opinion* const> opinions) {
  std::optional<uint32_t> set, floor, ceiling;
  for (const Opinion* opinion : opinions) {  // the weightiest first
    for (const Target& target : opinion->targets) {
      if (target.prefill != prefill) {
        continue;
      }
      switch (target.kind) {
        case TargetKind::kSet:
          set = set || !may_set ? set : target.workers;
          break;
        case TargetKind::kAtLeast:
          floor = std::max(floor.value_or(0), target.workers);
          break;
        case TargetKind::kAtMost:
          ceiling = std::min(ceiling.value_or(UINT32_MAX), target.workers);
          break;
      }
    }
  }
  std::optional<uint32_t> out = set ? set : before;
  if (!out) {
    return floor;
  }
  out = std::min(*out, ceiling.value_or(UINT32_MAX));
  return std::max(*out, floor.value_or(0));
}

}  // namespace

void fill(Forecast& first, const Forecast& later) {
  fill(first.requests, later.requests);
  fill(first.input_tokens, later.input_tokens);
  fill(first.output_tokens, later.output_tokens);
  fill(first.kv_hit_rate, later.kv_hit_rate);
  fill(first.accept_length, later.accept_length);
}

const char* name_of(Stage stage) {
  switch (stage) {
    case Stage::kPredict:
      return "predict";
    case Stage::kPropose:
      return "propose";
    case Stage::kReconcile:
      return "reconcile";
    case Stage::kConstrain:
      break;
  }
  return "constrain";
}

StageResult merge(Stage stage, const StageResult& before, std::span<const Opinion> opinions) {
  StageResult out = before;
  std::vector<const Opinion*> heard;
  for (const Opinion& opinion : opinions) {
    if (opinion.stage != stage) {
      continue;
    }
    if (opinion.rejects) {
      out.rejected_by = fmt::format("{}: {}", opinion.plugin, opinion.reason);
      return out;
    }
    heard.push_back(&opinion);
  }
  // Of equals who came first.
  std::ranges::sort(heard, {}, [](const Opinion* each) { return std::pair(each->priority, each); });
  const bool may_set = stage != Stage::kConstrain;
  const auto last_word =
      std::ranges::find_if(heard, [&](const Opinion* each) { return may_set && each->final; });
  if (last_word != heard.end()) {
    heard = {*last_word};
  }
  out.prefill = merge_pool(true, may_set, before.prefill, heard);
  out.decode = merge_pool(false, may_set, before.decode, heard);
  if (out.prefill != before.prefill || out.decode != before.decode) {
    for (const Opinion* each : heard) {
      if (!each->targets.empty()) {
        out.decided_by += (out.decided_by.empty() ? "" : ", ") + each->plugin;
      }
    }
  }
  return out;
}

}  // namespace stator::planner
