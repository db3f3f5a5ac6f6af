// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stator::inference {

// Requests that generate nothing: sequences of token ids in, numbers out. They travel as
// EngineRequest::pool beside generating ones, so that keys, cancelling, deadlines and refusals are
// the same.

/// What is wanted of each sequence.
enum class PoolTask : uint8_t {
  kEmbed,       ///< one vector
  kTokenEmbed,  ///< one vector per token
  kClassify,    ///< one probability per class
  kScore,       ///< one number: how well the second text of a pair answers the first
};
inline constexpr size_t kPoolTaskCount = 4;
/// "embed", "token_embed", "classify", "score": in records, in `task` of /pooling, on metrics.
std::string_view to_string(PoolTask task);
std::optional<PoolTask> find_pool_task(std::string_view name);

/// A set of tasks.
class PoolTasks {
 public:
  constexpr PoolTasks() noexcept = default;
  constexpr PoolTasks(std::initializer_list<PoolTask> tasks) noexcept {
    for (const PoolTask task : tasks) {
      add(task);
    }
  }
  constexpr void add(PoolTask task) noexcept { bits_ |= bit(task); }
  constexpr bool has(PoolTask task) const noexcept { return (bits_ & bit(task)) != 0; }
  constexpr bool any() const noexcept { return bits_ != 0; }
  friend constexpr bool operator==(const PoolTasks&, const PoolTasks&) noexcept = default;

 private:
  static constexpr uint8_t bit(PoolTask task) noexcept {
    return static_cast<uint8_t>(1U << static_cast<unsigned>(task));
  }
  uint8_t bits_ = 0;
};

/// What a model can do beside, or instead of, generating.
struct PoolAbility {
  bool generates = true;  ///< it takes requests without `pool`, too
  PoolTasks tasks;
  uint32_t width = 0;               ///< numbers per vector; 0: not known before the first answer
  std::vector<std::string> labels;  ///< of kClassify, by index; empty: not known
  bool wants_text = false;          ///< it computes from PoolRequest::texts
  friend bool operator==(const PoolAbility&, const PoolAbility&) = default;
};

/// The part of a request that makes it one of these. EngineRequest::tokens holds the sequences, one
/// after the other.
struct PoolRequest {
  PoolTask task = PoolTask::kEmbed;
  std::vector<uint32_t> lengths;  ///< of each sequence, at least 1 each; they add up to all tokens
  /// Of pairs: tokens of each sequence before its second text, where token types change. Empty: no
  /// sequence is a pair, or the model knows no types.
  std::vector<uint32_t> first_lengths;
  /// For engines that want text: one per sequence, of pairs two (first, second, first, …). Else
  /// empty.
  std::vector<std::string> texts;
  /// False: the model's raw numbers, without softmax, sigmoid or normalisation.
  bool activate = true;
  friend bool operator==(const PoolRequest&, const PoolRequest&) = default;
};

/// One request's answer; the last word on its key.
struct PoolAnswer {
  uint32_t width = 0;          ///< numbers per row
  std::vector<uint32_t> rows;  ///< of each sequence; empty: one each
  std::vector<float> values;   ///< all rows, one after the other
  uint32_t prompt_tokens = 0;  ///< as the engine counted them; 0: it does not tell
  friend bool operator==(const PoolAnswer&, const PoolAnswer&) = default;
};

/// Numbers in one answer: it stays below what a message between processes may hold.
inline constexpr size_t kPoolValuesMax = size_t{3} << 20;
/// Sequences in one request.
inline constexpr size_t kPoolSequencesMax = 4096;
/// Bytes of text in one request.
inline constexpr size_t kPoolTextBytesMax = size_t{8} << 20;

}  // namespace stator::inference
