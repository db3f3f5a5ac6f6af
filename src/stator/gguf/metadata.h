// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/core/result.h"

namespace stator::gguf {

/// The key-value pairs at the start of a GGUF file (versions 2 and 3). Views the bytes it was made
/// from. Getters: nothing if there is no such key, kCorrupt if it has another type.
class Metadata {
 public:
  /// kCorrupt: not GGUF or inconsistent; kTooLarge: the bytes end before the pairs do;
  /// kUnsupported: another version.
  static Result<Metadata> parse(std::string_view bytes);

  /// Where the descriptions of tensors begin, and how many the file says there are.
  size_t end() const { return end_; }
  uint64_t tensor_count() const { return tensor_count_; }
  bool has(std::string_view key) const { return values_.contains(key); }
  /// Elements of an array; 0 for what is none.
  uint64_t array_size(std::string_view key) const;

  Result<std::optional<std::string_view>> find_string(std::string_view key) const;
  Result<std::optional<uint64_t>> find_unsigned(std::string_view key) const;
  Result<std::optional<double>> find_float(std::string_view key) const;
  Result<std::optional<bool>> find_bool(std::string_view key) const;
  /// Arrays; empty where the key is absent.
  Result<std::vector<std::string_view>> find_strings(std::string_view key) const;
  Result<std::vector<float>> find_floats(std::string_view key) const;
  Result<std::vector<int32_t>> find_ints(std::string_view key) const;
  /// An array of 8-bit integers as it stands in the file.
  Result<std::string_view> find_bytes(std::string_view key) const;

 private:
  enum class Type : uint32_t {
    kUint8 = 0,
    kInt8 = 1,
    kUint32 = 4,
    kInt32 = 5,
    kFloat32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9,
    kUint64 = 10,
    kFloat64 = 12,
  };
  struct Value {
    Type type;  // of an array: of its elements
    bool is_array;
    uint64_t count;  // of an array's elements, or 1
    std::string_view bytes;
  };
  class Reader;

  const Value* find(std::string_view key) const;
  Result<const Value*> find_array(std::string_view key, Type type) const;

  FlatMap<std::string_view, Value> values_;
  size_t end_ = 0;
  uint64_t tensor_count_ = 0;
};

}  // namespace stator::gguf
