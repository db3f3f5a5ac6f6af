// SPDX-License-Identifier: Apache-2.0
#include "stator/gguf/file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "stator/core/flat_map.h"

namespace stator::gguf {
namespace {

constexpr uint64_t kTensorsMax = 1U << 20U;
constexpr uint32_t kRankMax = 4;
constexpr uint64_t kAlignmentMax = 1U << 20U;
constexpr size_t kNameShownMax = 200;

struct TypeRow {
  Type type;
  std::string_view name;
  uint64_t elements;
  uint64_t bytes;
};
constexpr auto kTypes = std::to_array<TypeRow>({
    {Type::kF32, "F32", 1, 4},
    {Type::kF16, "F16", 1, 2},
    {Type::kQ4_0, "Q4_0", 32, 18},
    {Type::kQ8_0, "Q8_0", 32, 34},
    {Type::kQ4K, "Q4_K", 256, 144},
    {Type::kQ6K, "Q6_K", 256, 210},
    {Type::kBf16, "BF16", 1, 2},
});

const TypeRow* find_type(uint32_t number) {
  const auto* found = std::ranges::find(kTypes, static_cast<Type>(number), &TypeRow::type);
  return found == kTypes.end() ? nullptr : found;
}

Error about(std::string_view tensor, std::string_view what) {
  return Error(Code::kCorrupt,
               fmt::format("GGUF tensor '{}' {}", tensor.substr(0, kNameShownMax), what));
}

/// Takes numbers off the front of the descriptions.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes, size_t at) : bytes_(bytes), at_(at) {}

  size_t position() const { return at_; }

  template <typename T>
  Result<T> number() {
    if (bytes_.size() - at_ < sizeof(T)) {
      return truncated();
    }
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  Result<std::string> text() {
    STATOR_TRY(const auto length, number<uint64_t>());
    if (length > bytes_.size() - at_) {
      return truncated();
    }
    std::string out(reinterpret_cast<const char*>(bytes_.data()) + at_, length);
    at_ += length;
    return out;
  }

 private:
  static Error truncated() {
    return Error(Code::kCorrupt, "the GGUF file is truncated: it ends within its list of tensors");
  }
  std::span<const std::byte> bytes_;
  size_t at_;
};

struct Described {
  Tensor tensor;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

Result<Described> read_description(Reader& reader) {
  Described out;
  STATOR_TRY(out.tensor.name, reader.text());
  const std::string_view name = out.tensor.name;
  STATOR_TRY(const auto rank, reader.number<uint32_t>());
  if (rank == 0 || rank > kRankMax) {
    return about(name, fmt::format("has {} dimensions, 1 to {} are read", rank, kRankMax));
  }
  for (uint32_t i = 0; i < rank; ++i) {
    STATOR_TRY(const auto extent, reader.number<uint64_t>());
    out.tensor.shape.push_back(extent);
  }
  STATOR_TRY(const auto type, reader.number<uint32_t>());
  STATOR_TRY(out.offset, reader.number<uint64_t>());
  const TypeRow* row = find_type(type);
  if (row == nullptr) {
    return Error(Code::kUnsupported,
                 fmt::format("GGUF tensor '{}' has type {}; read are F32, F16, BF16, Q8_0, Q4_0, "
                             "Q4_K and Q6_K: quantize the model to one of them",
                             name.substr(0, kNameShownMax), type));
  }
  out.tensor.type = row->type;
  if (out.tensor.shape.front() % row->elements != 0) {
    return about(name, fmt::format("has rows of {}, no multiple of {}, which {} needs",
                                   out.tensor.shape.front(), row->elements, row->name));
  }
  uint64_t elements = 1;
  for (const uint64_t extent : out.tensor.shape) {
    if (extent == 0 || __builtin_mul_overflow(elements, extent, &elements)) {
      return about(name, "is empty or too large");
    }
  }
  if (__builtin_mul_overflow(elements / row->elements, row->bytes, &out.bytes)) {
    return about(name, "is too large");
  }
  std::ranges::reverse(out.tensor.shape);
  return out;
}

}  // namespace

std::string_view to_string(Type type) {
  return find_type(static_cast<uint32_t>(type))->name;
}
uint64_t block_elements(Type type) {
  return find_type(static_cast<uint32_t>(type))->elements;
}
uint64_t block_bytes(Type type) {
  return find_type(static_cast<uint32_t>(type))->bytes;
}

Result<File> File::parse(std::span<const std::byte> bytes) {
  File file;
  STATOR_TRY(file.metadata,
             Metadata::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  const uint64_t count = file.metadata.tensor_count();
  STATOR_TRY(const auto asked, file.metadata.find_unsigned("general.alignment"));
  const uint64_t alignment = asked.value_or(32);
  if (count > kTensorsMax) {
    return Error(Code::kCorrupt, fmt::format("GGUF: {} tensors", count));
  }
  if (alignment == 0 || alignment > kAlignmentMax || (alignment & (alignment - 1)) != 0) {
    return Error(Code::kCorrupt,
                 fmt::format("GGUF: general.alignment {} is no power of two", alignment));
  }
  Reader reader(bytes, file.metadata.end());
  std::vector<Described> described;
  FlatSet<std::string> names;
  for (uint64_t i = 0; i < count; ++i) {
    STATOR_TRY(Described one, read_description(reader));
    if (!names.insert(one.tensor.name).second) {
      return about(one.tensor.name, "appears twice");
    }
    if (one.offset % alignment != 0) {
      return about(one.tensor.name, fmt::format("is not aligned to {}", alignment));
    }
    described.push_back(std::move(one));
  }
  const uint64_t data = (reader.position() + alignment - 1) / alignment * alignment;
  std::ranges::sort(described, {}, &Described::offset);
  uint64_t end = 0;
  for (Described& one : described) {
    if (one.offset < end) {
      return about(one.tensor.name, "overlaps another one");
    }
    const uint64_t room = bytes.size() < data ? 0 : bytes.size() - data;
    if (one.offset > room || one.bytes > room - one.offset) {
      return about(one.tensor.name,
                   "lies behind the end of the file, which is truncated: copy it "
                   "again");
    }
    end = one.offset + one.bytes;
    one.tensor.bytes = bytes.subspan(data + one.offset, one.bytes);
    file.tensors.push_back(std::move(one.tensor));
  }
  return file;
}

}  // namespace stator::gguf
