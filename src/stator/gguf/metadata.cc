// SPDX-License-Identifier: Apache-2.0
#include "stator/gguf/metadata.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <iterator>

namespace stator::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kPairsMax = 1 << 16;  // published files have about 50

Error truncated() {
  return Error(Code::kTooLarge, "the GGUF file ends within its metadata");
}

Error wrong_type(std::string_view key) {
  return Error(Code::kCorrupt, fmt::format("GGUF: {} has an unexpected type", key));
}

template <typename T>
T read_as(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

/// Bytes of one value of a type of fixed size, by number; 0 for strings, arrays and unknown types.
size_t fixed_size(uint32_t type) {
  constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < std::size(kSizes) ? kSizes[type] : 0;
}

}  // namespace

/// Takes values off the front of the bytes.
class Metadata::Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  Result<T> number() {
    STATOR_TRY(const std::string_view bytes, take(sizeof(T)));
    return read_as<T>(bytes);
  }

  Result<std::string_view> string() {
    STATOR_TRY(const uint64_t size, number<uint64_t>());
    return take(size);
  }

  size_t left() const { return rest_.size(); }

  Result<Value> value() {
    STATOR_TRY(const uint32_t type, number<uint32_t>());
    if (static_cast<Type>(type) != Type::kArray) {
      return elements(type, 1, false);
    }
    STATOR_TRY(const uint32_t element_type, number<uint32_t>());
    STATOR_TRY(const uint64_t count, number<uint64_t>());
    return elements(element_type, count, true);
  }

 private:
  Result<std::string_view> take(uint64_t size) {
    if (size > rest_.size()) {
      return truncated();
    }
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  Result<Value> elements(uint32_t type, uint64_t count, bool is_array) {
    Value value{static_cast<Type>(type), is_array, count, {}};
    const std::string_view before = rest_;
    if (value.type == Type::kString) {
      for (uint64_t i = 0; i < count; ++i) {
        const auto element = string();
        if (!element.has_value()) {
          return element.error().clone();
        }
      }
      value.bytes = before.substr(0, before.size() - rest_.size());
      return value;
    }
    const size_t size = fixed_size(type);
    if (size == 0) {
      return Error(Code::kCorrupt, fmt::format("GGUF: a value has the unknown type {}", type));
    }
    if (count > rest_.size() / size) {
      return truncated();
    }
    STATOR_TRY(value.bytes, take(count * size));
    return value;
  }

  std::string_view rest_;
};

Result<Metadata> Metadata::parse(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) {
    return Error(Code::kCorrupt, "the file does not start with GGUF");
  }
  Reader reader(bytes.substr(kMagic.size()));
  STATOR_TRY(const auto version, reader.number<uint32_t>());
  if (version < 2 || version > 3) {
    return Error(Code::kUnsupported,
                 fmt::format("GGUF version {} is not 2 or 3; convert the file anew", version));
  }
  STATOR_TRY(const auto tensors, reader.number<uint64_t>());
  STATOR_TRY(const auto pairs, reader.number<uint64_t>());
  if (pairs > kPairsMax) {
    return Error(Code::kCorrupt, fmt::format("GGUF: {} metadata entries", pairs));
  }
  Metadata metadata;
  for (uint64_t i = 0; i < pairs; ++i) {
    STATOR_TRY(const std::string_view key, reader.string());
    STATOR_TRY(const Value value, reader.value());
    metadata.values_.insert_or_assign(key, value);
  }
  metadata.end_ = bytes.size() - reader.left();
  metadata.tensor_count_ = tensors;
  return metadata;
}

const Metadata::Value* Metadata::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Result<const Metadata::Value*> Metadata::find_array(std::string_view key, Type type) const {
  const Value* value = find(key);
  if (value != nullptr && (!value->is_array || value->type != type)) {
    return wrong_type(key);
  }
  return value;
}

Result<std::optional<std::string_view>> Metadata::find_string(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) {
    return std::optional<std::string_view>();
  }
  if (value->is_array || value->type != Type::kString) {
    return wrong_type(key);
  }
  return std::optional(value->bytes.substr(sizeof(uint64_t)));
}

Result<std::optional<uint64_t>> Metadata::find_unsigned(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) {
    return std::optional<uint64_t>();
  }
  if (!value->is_array && value->type == Type::kUint64) {
    return std::optional(read_as<uint64_t>(value->bytes));
  }
  const bool is_natural = value->type == Type::kUint32 ||
                          (value->type == Type::kInt32 && read_as<int32_t>(value->bytes) >= 0);
  if (value->is_array || !is_natural) {
    return wrong_type(key);
  }
  return std::optional<uint64_t>(read_as<uint32_t>(value->bytes));
}

Result<std::optional<double>> Metadata::find_float(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) {
    return std::optional<double>();
  }
  if (!value->is_array && value->type == Type::kFloat64) {
    return std::optional(read_as<double>(value->bytes));
  }
  if (value->is_array || value->type != Type::kFloat32) {
    return wrong_type(key);
  }
  return std::optional(static_cast<double>(read_as<float>(value->bytes)));
}

uint64_t Metadata::array_size(std::string_view key) const {
  const Value* value = find(key);
  return value != nullptr && value->is_array ? value->count : 0;
}

Result<std::optional<bool>> Metadata::find_bool(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) {
    return std::optional<bool>();
  }
  if (value->is_array || value->type != Type::kBool) {
    return wrong_type(key);
  }
  return std::optional(value->bytes.front() != 0);
}

Result<std::vector<std::string_view>> Metadata::find_strings(std::string_view key) const {
  STATOR_TRY(const Value* value, find_array(key, Type::kString));
  std::vector<std::string_view> strings;
  std::string_view rest = value == nullptr ? std::string_view() : value->bytes;
  while (!rest.empty()) {
    const auto size = read_as<uint64_t>(rest);
    strings.push_back(rest.substr(sizeof(size), size));
    rest.remove_prefix(sizeof(size) + size);
  }
  return strings;
}

Result<std::vector<float>> Metadata::find_floats(std::string_view key) const {
  STATOR_TRY(const Value* value, find_array(key, Type::kFloat32));
  std::vector<float> numbers(value == nullptr ? 0 : value->count);
  if (!numbers.empty()) {
    std::memcpy(numbers.data(), value->bytes.data(), value->bytes.size());
  }
  return numbers;
}

Result<std::vector<int32_t>> Metadata::find_ints(std::string_view key) const {
  STATOR_TRY(const Value* value, find_array(key, Type::kInt32));
  std::vector<int32_t> numbers(value == nullptr ? 0 : value->count);
  if (!numbers.empty()) {
    std::memcpy(numbers.data(), value->bytes.data(), value->bytes.size());
  }
  return numbers;
}

Result<std::string_view> Metadata::find_bytes(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) {
    return std::string_view();
  }
  if (!value->is_array || (value->type != Type::kUint8 && value->type != Type::kInt8)) {
    return wrong_type(key);
  }
  return value->bytes;
}

}  // namespace stator::gguf
