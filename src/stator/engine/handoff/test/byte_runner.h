// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/hash.h"
#include "stator/core/mutex.h"
#include "stator/engine/api/engine.h"
#include "stator/engine/api/model_runner.h"

namespace stator::engine {

/// A model whose every token depends on every byte of the KV blocks in front of it: a wrong byte is
/// another token. "KV" of a position is a hash over that of the one in front of it and the token.
class ByteRunner final : public ModelRunner {
 public:
  static constexpr uint32_t kBlock = 4;
  static constexpr size_t kBytes = kBlock * sizeof(uint64_t);

  ByteRunner(uint32_t device_blocks, uint32_t host_blocks)
      : device_(device_blocks * kBlock), host_(host_blocks * kBlock) {}

  uint32_t vocab_size() const override { return 1000; }
  uint32_t max_model_len() const override { return 256; }
  bool supports_host_tier() const override { return true; }
  std::span<std::byte> device_block(BlockId block) override {
    return std::as_writable_bytes(std::span(device_).subspan(block.value() * kBlock, kBlock));
  }
  std::span<std::byte> host_block(uint32_t slot) override {
    return std::as_writable_bytes(std::span(host_).subspan(slot * kBlock, kBlock));
  }
  void copy_blocks(std::span<const kv::BlockCopy> copies) override {
    for (const kv::BlockCopy& copy : copies) {
      const auto device = device_block(copy.block);
      const auto host = host_block(copy.slot);
      const bool down = copy.direction == kv::BlockCopy::Direction::kToHost;
      std::memcpy((down ? host : device).data(), (down ? device : host).data(), kBytes);
    }
  }
  void run(std::span<const SequenceSlice> slices, std::span<Sampled> sampled) override {
    for (size_t i = 0; i < slices.size(); ++i) {
      const SequenceSlice& slice = slices[i];
      const auto at = [&](uint32_t p) -> uint64_t& {
        return device_[slice.blocks[p / kBlock].value() * kBlock + p % kBlock];
      };
      for (uint32_t p = slice.start; p < slice.start + slice.count; ++p) {
        at(p) = mix64((p == 0 ? 1 : at(p - 1)) ^ slice.tokens[p]);
      }
      uint64_t all = 0;
      for (uint32_t p = 0; slice.sample && p < slice.start + slice.count; ++p) {
        all = mix64(all ^ at(p));
      }
      sampled[i].token = static_cast<TokenId>(all % 1000);
    }
  }

 private:
  std::vector<uint64_t> device_;
  std::vector<uint64_t> host_;
};

/// Keeps what an engine says; tests wait for the end of a request.
class KeepingSink final : public EngineSink {
 public:
  struct Heard {
    std::vector<TokenId> tokens;
    uint32_t cached_tokens = 0;
    bool ended = false;
    std::string failure;
    std::vector<inference::Handoff> offers;
  };
  void on_step(inference::StepOutput output) noexcept override {
    const MutexLock lock(mutex_);
    for (const inference::Delta& delta : output.deltas) {
      Heard& heard = heard_[delta.key];
      const auto tokens = output.tokens_of(delta);
      heard.tokens.insert(heard.tokens.end(), tokens.begin(), tokens.end());
      heard.cached_tokens = std::max(heard.cached_tokens, delta.cached_tokens);
      heard.ended = delta.finish != inference::FinishReason::kNone;
    }
    for (inference::Failure& failure : output.failures) {
      heard_[failure.key].failure = failure.error.message();
      heard_[failure.key].ended = true;
    }
    for (inference::Offer& offer : output.offers) {
      heard_[offer.key].offers.push_back(std::move(offer.handoff));
    }
    changed_.notify_all();
  }
  Heard wait_for(inference::RequestKey key, const std::function<bool(const Heard&)>& done) {
    MutexLock lock(mutex_);
    while (!done(heard_[key])) {
      changed_.wait(lock);
    }
    return heard_[key];
  }
  Heard wait_for_end(inference::RequestKey key) {
    return wait_for(key, [](const Heard& heard) { return heard.ended; });
  }

 private:
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::map<inference::RequestKey, Heard> heard_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::engine
