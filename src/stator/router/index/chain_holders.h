// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stator/router/index/holder_sets.h"

namespace stator::router {

/// Who holds which rows of one chain: four bytes per worker and stretch of rows, sorted by slot and
/// row. Nearly always a worker holds a chain's beginning, so it has one entry; a hole makes two.
/// Three entries stand in the chain itself, more in a block of their own.
///
/// One writer. Any thread may take a view inside an epoch; whether the view is of one moment is for
/// the caller to find out (ChainIndex has a version per chain). Zeroed memory is an empty list.
class ChainHolders {
 public:
  static constexpr uint32_t kRowsMax = 256;  ///< row numbers take eight bits

  /// Rows [from, to) of the chain, in four bytes.
  struct Hold {
    Slot slot = 0;
    uint32_t from = 0;
    uint32_t to = 0;

    static constexpr Hold of(uint32_t word) {
      return {word >> 16, word >> 8 & 0xFF, (word & 0xFF) + 1};
    }
    constexpr uint32_t word() const { return slot << 16 | from << 8 | (to - 1); }
  };

  class View {
   public:
    View(const std::atomic<uint32_t>* words, uint32_t count) : words_(words), count_(count) {}
    uint32_t size() const { return count_; }
    uint32_t word(uint32_t i) const { return words_[i].load(std::memory_order_relaxed); }
    Hold operator[](uint32_t i) const { return Hold::of(word(i)); }
    /// First entry that is not less than `word`.
    uint32_t lower_bound(uint32_t word) const;

   private:
    const std::atomic<uint32_t>* words_;
    uint32_t count_;
  };

  /// Entries of a long list: capacity, count, words. A reader may be in one that was replaced.
  using Block = std::unique_ptr<std::atomic<uint32_t>[]>;

  /// A change, computed before anything is written: `gone` words from `at` on give way to `fresh`.
  struct Splice {
    uint32_t at = 0;
    uint32_t gone = 0;
    uint32_t fresh = 0;
    std::array<uint32_t, 2> words{};
    uint32_t rows = 0;  ///< that are held now and were not, or the other way round
  };

  // Any thread.
  View view() const;

  // Writer.
  Splice plan_add(Hold hold) const;
  Splice plan_drop(Hold hold) const;
  /// What was replaced, if anything: free it when no reader can be in it.
  [[nodiscard]] Block apply(const Splice& splice);
  /// The same with a whole new list, sorted.
  [[nodiscard]] Block assign(std::span<const uint32_t> words);
  bool holds(Slot slot, uint32_t row) const;
  /// Behind the last row that somebody holds.
  uint32_t end() const;
  /// Of the block on the heap, if any.
  size_t bytes() const { return bytes_of(block_.load(std::memory_order_relaxed)); }
  static size_t bytes_of(const std::atomic<uint32_t>* block);

 private:
  static constexpr uint32_t kInline = 3;
  static constexpr uint32_t kHeader = 2;  // words of a block before its entries

  std::atomic<uint32_t>* words();
  void set_count(uint32_t count);
  Block resize(uint32_t count);

  std::atomic<std::atomic<uint32_t>*> block_{nullptr};  // owned; null = inline
  std::atomic<uint32_t> count_{0};                      // of inline entries
  std::array<std::atomic<uint32_t>, kInline> inline_{};
};

}  // namespace stator::router
