// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "stator/structured/refusal.h"

namespace stator::structured {

inline constexpr uint32_t kJsonDepthMax = 128;  ///< as the request parser's
inline constexpr uint32_t kJsonNodesMax = 200'000;

enum class JsonType : uint8_t { kObject, kArray, kString, kNumber, kBool, kNull };

/// "an object", "a string", …
std::string_view describe(JsonType type);

/// Index of a value in its tree; the root is 0.
using JsonIndex = uint32_t;
inline constexpr JsonIndex kNoJson = UINT32_MAX;

struct JsonNode {
  JsonType type = JsonType::kNull;
  bool boolean = false;
  double number = 0;
  std::string_view raw;   ///< the value's own text, verbatim
  std::string_view text;  ///< kString: decoded
  std::string_view key;   ///< decoded name, when the parent is an object
  JsonIndex parent = kNoJson;
  JsonIndex first_child = kNoJson;
  JsonIndex next = kNoJson;  ///< next child of the parent
  uint32_t child_count = 0;
  uint32_t order = 0;  ///< containers: where their children begin in JsonTree's order_
};

/// A whole JSON document to walk: every value validated (simdjson On-Demand underneath), with its
/// slice of the text. Unlike a DOM it keeps key order and spelling, and it refuses duplicate keys,
/// of which engines would pick different ones.
class JsonTree {
 public:
  /// `text` must outlive the tree. Refused: text that is not one JSON value, kJsonDepthMax,
  /// kJsonNodesMax, kTextBytesMax.
  static Outcome<JsonTree> parse(std::string_view text);

  const JsonNode& root() const { return nodes_.front(); }
  const JsonNode& operator[](JsonIndex index) const { return nodes_[index]; }
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }

  /// The member `key` of an object, kNoJson if there is none (or `object` is not one).
  /// Logarithmic.
  JsonIndex find(JsonIndex object, std::string_view key) const;
  /// "#/properties/a~1b/0", relative to the ancestor `base`.
  std::string pointer(JsonIndex index, JsonIndex base = 0) const;
  /// What a pointer without its '#' ("/a/0", "" for the base itself) leads to, or kNoJson.
  JsonIndex resolve(JsonIndex base, std::string_view pointer) const;

  /// for (JsonIndex child : tree.children(index))
  class Children {
   public:
    class Iterator {
     public:
      Iterator(const JsonTree& tree, JsonIndex at) : tree_(&tree), at_(at) {}
      JsonIndex operator*() const { return at_; }
      Iterator& operator++() {
        at_ = (*tree_)[at_].next;
        return *this;
      }
      bool operator==(const Iterator& other) const { return at_ == other.at_; }

     private:
      const JsonTree* tree_;
      JsonIndex at_;
    };
    Children(const JsonTree& tree, JsonIndex parent) : tree_(tree), parent_(parent) {}
    Iterator begin() const { return {tree_, tree_[parent_].first_child}; }
    Iterator end() const { return {tree_, kNoJson}; }

   private:
    const JsonTree& tree_;
    JsonIndex parent_;
  };
  Children children(JsonIndex parent) const { return {*this, parent}; }

 private:
  friend class JsonTreeReader;
  JsonTree() = default;
  std::vector<JsonNode> nodes_;
  std::vector<JsonIndex> order_;  // children of each container; members of objects sorted by key
  std::vector<char> decoded_;     // what `text` and `key` point into; never grows after its reserve
};

/// Appends `text` as a JSON string with quotes. `text` must be UTF-8.
void append_json_string(std::string& out, std::string_view text);
std::string json_string(std::string_view text);

}  // namespace stator::structured
