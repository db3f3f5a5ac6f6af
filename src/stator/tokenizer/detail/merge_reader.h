// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "stator/core/ids.h"
#include "stator/tokenizer/text_ids.h"

namespace stator::tokenizer {

/// Finds the ids of merges as vocabulary files spell them, several merges at a time, so that their
/// look-ups wait for memory together: a vocabulary of 128,000 tokens has 280,000 merges of three
/// texts each.
class MergeReader {
 public:
  static constexpr size_t kAtOnce = 32;
  using Spelled = std::pair<std::string_view, std::string_view>;
  struct Ids {
    TokenId left;
    TokenId right;
    TokenId merged;
    bool complete() const {
      return left != TextIds::kNone && right != TextIds::kNone && merged != TextIds::kNone;
    }
  };

  /// How the texts of `ids` are spelled: as in the file, or as bytes where the file uses the byte
  /// alphabet.
  enum class Spelling : uint8_t { kAsInFile, kBytes };
  /// `prefix_bytes` of each right part are not in what it merges to. `ids` must outlive this.
  MergeReader(const TextIds& ids, Spelling spelling, size_t prefix_bytes)
      : ids_(ids), spelling_(spelling), prefix_bytes_(prefix_bytes) {}

  /// At most kAtOnce; forgets those before. In ids(i) what was not found is TextIds::kNone.
  void read(std::span<const Spelled> merges);
  const Ids& ids(size_t index) const { return found_[index]; }

 private:
  struct Texts {
    std::array<std::string_view, 3> texts;
    std::array<uint64_t, 3> hashes;
  };
  void spell(const Spelled& merge, Texts& texts);

  const TextIds& ids_;
  Spelling spelling_;
  size_t prefix_bytes_;
  std::string buffer_;  // what texts_ are views of
  std::array<Texts, kAtOnce> texts_{};
  std::array<Ids, kAtOnce> found_{};
};

}  // namespace stator::tokenizer
