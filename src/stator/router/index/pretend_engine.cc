// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/pretend_engine.h"

#include <utility>

namespace stator::router {

using blocks::ExternalHash;
using blocks::LocalHash;
using blocks::SequenceHash;

std::optional<kv::KvEvent> PretendEngine::store(std::span<const uint64_t> locals) {
  const auto sequences = sequences_of(locals);
  size_t held = 0;
  while (held < sequences.size() && names_.contains(sequences[held])) {
    ++held;
  }
  if (held == sequences.size()) {
    return std::nullopt;
  }
  kv::BlocksStored run;
  if (held > 0) {
    run.parent = names_.at(sequences[held - 1]);
  }
  for (size_t i = held; i < sequences.size(); ++i) {
    const auto [name, fresh] = names_.try_emplace(sequences[i]);
    if (fresh) {
      name->second = next_name(sequences[i]);
      order_.push_back(sequences[i]);
    }
    run.blocks.push_back({name->second, LocalHash(locals[i])});
  }
  return kv::KvEvent{.event_id = 1, .data = std::move(run)};
}

std::optional<kv::KvEvent> PretendEngine::evict(size_t count, Random& random) {
  kv::BlocksRemoved run;
  while (count-- > 0 && !order_.empty()) {
    if (random.below(4) == 0) {
      std::swap(order_[random.below(order_.size())], order_.back());
    }
    const SequenceHash gone = order_.back();
    order_.pop_back();
    run.blocks.push_back(names_.at(gone));
    names_.erase(gone);
  }
  return run.blocks.empty() ? std::nullopt
                            : std::optional(kv::KvEvent{.event_id = 1, .data = std::move(run)});
}

void PretendEngine::clear() {
  names_.clear();
  order_.clear();
}

ExternalHash PretendEngine::next_name(SequenceHash content) {
  switch (naming_) {
    case Naming::kSequenceHash:
      return ExternalHash(content.value());
    case Naming::kSharedOpaque:
      return ExternalHash(mix64(content.value()));
    case Naming::kPrivateOpaque:
      return ExternalHash(mix64(content.value() ^ key_.worker.value()));
    case Naming::kCounter:
      return ExternalHash(counter_++);
  }
  return {};
}

std::vector<SequenceHash> sequences_of(std::span<const uint64_t> locals) {
  std::vector<SequenceHash> out;
  out.reserve(locals.size());
  for (const uint64_t local : locals) {
    out.push_back(out.empty() ? blocks::chain(LocalHash(local))
                              : blocks::chain(out.back(), LocalHash(local)));
  }
  return out;
}

std::vector<uint64_t> random_prompt(Random& random, uint64_t long_one_in) {
  std::vector<uint64_t> locals;
  uint64_t node = 1;
  const size_t length = 1 + random.below(random.below(long_one_in) == 0 ? 400 : 24);
  for (size_t i = 0; i < length; ++i) {
    node = mix64(node * 4 + (random.below(6) == 0 ? random.below(3) : 0));
    locals.push_back(node);
  }
  return locals;
}

}  // namespace stator::router
