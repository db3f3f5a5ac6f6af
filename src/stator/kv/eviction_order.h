// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

namespace stator::kv {

/// Which idle block goes first when room is needed. Under all of them a block goes after those that
/// stand behind it.
enum class Eviction : uint8_t {
  kLru,       ///< released longest ago
  kMultiLru,  ///< fewest hits (four levels: below 3, 8, 15, and more), then released longest ago
  kLineage,   ///< of those nothing stands behind: idle longest since it was registered
  kValue,     ///< least worth: hits × cost of computing it again, old worth fading (GDSF)
};
inline constexpr size_t kEvictions = 4;
/// "lru", "multi_lru", "lineage", "value".
std::string_view to_string(Eviction eviction);
std::optional<Eviction> find_eviction(std::string_view name);

/// The idle blocks nothing idle stands behind, in the order in which they go; for all orders but
/// LRU, which is a list. Source of kValue: Cherkasova, "Improving WWW Proxies Performance with
/// Greedy-Dual-Size-Frequency Caching", 1998, with the attention's growing cost for the size.
///
/// E1  A block is in it at most once, and take() gives what is least by score, then by release.
/// Cost: O(log blocks), about 100 bytes per idle leaf and 48 per block. One thread.
class EvictionOrder {
 public:
  EvictionOrder(Eviction eviction, uint32_t blocks) : eviction_(eviction), keys_(blocks) {}

  struct Facts {
    uint32_t hits = 0;        ///< matches it was part of
    uint32_t depth = 0;       ///< blocks in front of it
    uint64_t registered = 0;  ///< when, in any growing count
    uint64_t released = 0;    ///< when last, in any growing count
  };
  void insert(uint32_t block, const Facts& facts);
  /// Nothing if it is not in it.
  void erase(uint32_t block);
  /// Takes the next one out. Nothing: empty.
  std::optional<uint32_t> take();
  void clear();
  size_t size() const { return order_.size(); }

 private:
  struct Key {
    double score = 0;
    uint64_t released = 0;
    uint32_t block = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Place {
    Key key;
    bool in = false;
  };

  double score_of(const Facts& facts) const;

  const Eviction eviction_;
  std::set<Key> order_;
  std::vector<Place> keys_;  // by block
  double age_ = 0;           // kValue: score of what went last
};

}  // namespace stator::kv
