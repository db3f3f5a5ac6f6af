// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/safetensors.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>

namespace stator::engine::cpu {
namespace {

namespace dom = simdjson::dom;

constexpr uint64_t kPrefixBytes = 8;
constexpr size_t kRankMax = 8;
constexpr size_t kShardsMax = 1024;
constexpr size_t kIndexBytesMax = 64U << 20U;

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  size_t bytes;
};
constexpr size_t kOfSafetensors = 15;  // the first rows
constexpr std::array<DtypeRow, 19> kDtypes = {{
    {Dtype::kF32, "F32", 4},   {Dtype::kF16, "F16", 2},        {Dtype::kBf16, "BF16", 2},
    {Dtype::kF64, "F64", 8},   {Dtype::kI64, "I64", 8},        {Dtype::kU64, "U64", 8},
    {Dtype::kI32, "I32", 4},   {Dtype::kU32, "U32", 4},        {Dtype::kI16, "I16", 2},
    {Dtype::kU16, "U16", 2},   {Dtype::kI8, "I8", 1},          {Dtype::kU8, "U8", 1},
    {Dtype::kBool, "BOOL", 1}, {Dtype::kF8E4m3, "F8_E4M3", 1}, {Dtype::kF8E5m2, "F8_E5M2", 1},
    {Dtype::kQ8_0, "Q8_0", 0}, {Dtype::kQ4_0, "Q4_0", 0},      {Dtype::kQ4K, "Q4_K", 0},
    {Dtype::kQ6K, "Q6_K", 0},
}};

Error corrupt(std::string_view file, std::string_view what) {
  return Error(Code::kCorrupt, fmt::format("{}: {}", file, what));
}

Error corrupt_tensor(std::string_view file, std::string_view tensor, std::string_view what) {
  // A hostile name must not flood the log.
  return Error(Code::kCorrupt,
               fmt::format("{}: tensor '{}': {}", file, tensor.substr(0, 200), what));
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const DtypeRow& row : std::span(kDtypes).first(kOfSafetensors)) {
    if (row.name == name) {
      return row.dtype;
    }
  }
  return std::nullopt;
}

/// dtype × shape in bytes, or nothing if that overflows 64 bits.
std::optional<uint64_t> tensor_bytes(const TensorInfo& tensor) {
  uint64_t bytes = dtype_bytes(tensor.dtype);
  for (const uint64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

/// The numbers of a JSON array, or nothing if it is not an array of at most `count_max` u64.
std::optional<std::vector<uint64_t>> numbers(simdjson::simdjson_result<dom::element> value,
                                             size_t count_max) {
  dom::array array;
  if (value.get(array) != simdjson::SUCCESS || array.size() > count_max) {
    return std::nullopt;
  }
  std::vector<uint64_t> result;
  for (const dom::element item : array) {
    uint64_t number = 0;
    if (item.get(number) != simdjson::SUCCESS) {
      return std::nullopt;
    }
    result.push_back(number);
  }
  return result;
}

/// Reads one entry; begin and end stay relative to the data section.
Result<TensorInfo> parse_tensor(std::string_view file, std::string_view name, dom::element value) {
  if (name.empty() || name.contains('\0')) {
    return corrupt_tensor(file, name, "the name is empty or contains NUL");
  }
  TensorInfo tensor{.name = std::string(name)};
  dom::object object;
  std::string_view dtype_name;
  if (value.get(object) != simdjson::SUCCESS ||
      object.at_key("dtype").get(dtype_name) != simdjson::SUCCESS) {
    return corrupt_tensor(file, name, "the header entry has no dtype");
  }
  const auto dtype = dtype_from_name(dtype_name);
  if (!dtype) {
    return Error(Code::kUnsupported,
                 fmt::format("{}: tensor '{}' has dtype '{}', which this build "
                             "does not read; convert it to F32, F16 or BF16",
                             file, name.substr(0, 200), dtype_name.substr(0, 40)));
  }
  tensor.dtype = *dtype;
  auto shape = numbers(object.at_key("shape"), kRankMax);
  const auto offsets = numbers(object.at_key("data_offsets"), 2);
  if (!shape || !offsets || offsets->size() != 2) {
    return corrupt_tensor(file, name, "shape or data_offsets is missing or malformed");
  }
  tensor.shape = std::move(*shape);
  tensor.begin = (*offsets)[0];
  tensor.end = (*offsets)[1];
  const auto bytes = tensor_bytes(tensor);
  if (!bytes || tensor.end < tensor.begin || tensor.end - tensor.begin != *bytes) {
    return corrupt_tensor(file, name, "data_offsets do not match dtype and shape");
  }
  return tensor;
}

/// Every byte of the data section belongs to exactly one tensor. `tensors` is ordered by offset.
Status check_coverage(std::string_view file, const std::vector<TensorInfo>& tensors,
                      uint64_t data_bytes) {
  uint64_t position = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin != position) {
      return corrupt_tensor(
          file, tensor.name,
          tensor.begin < position ? "overlaps another tensor" : "leaves a hole before it");
    }
    position = tensor.end;
  }
  if (position > data_bytes) {
    return corrupt(file, fmt::format("the file is truncated: its header describes {} bytes of "
                                     "tensors, {} are there; copy it again",
                                     position, data_bytes));
  }
  if (position < data_bytes) {
    return corrupt(
        file, fmt::format("{} bytes after the last tensor belong to none", data_bytes - position));
  }
  return {};
}

/// The header's length, checked against the file's.
Result<uint64_t> read_header_bytes(std::span<const std::byte> file, std::string_view file_name) {
  if (file.size() < kPrefixBytes) {
    return corrupt(file_name, fmt::format("the file is truncated: {} bytes are no safetensors file",
                                          file.size()));
  }
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kPrefixBytes; ++i) {
    header_bytes |= static_cast<uint64_t>(file[i]) << (8 * i);
  }
  if (header_bytes < 2 || header_bytes > kHeaderBytesMax) {
    return corrupt(file_name, fmt::format("header length {} is not within 2 and {}", header_bytes,
                                          kHeaderBytesMax));
  }
  if (header_bytes > file.size() - kPrefixBytes) {
    return corrupt(file_name, fmt::format("the file is truncated: its header has {} bytes, {} are "
                                          "there; copy it again",
                                          header_bytes, file.size() - kPrefixBytes));
  }
  return header_bytes;
}

Result<std::vector<TensorInfo>> parse_entries(std::string_view header, std::string_view file_name) {
  dom::parser parser;
  dom::element root;
  dom::object object;
  if (header.front() != '{' ||
      parser.parse(header.data(), header.size()).get(root) != simdjson::SUCCESS ||
      root.get(object) != simdjson::SUCCESS) {
    return corrupt(file_name, "the header is not a JSON object");
  }
  std::vector<TensorInfo> tensors;
  FlatSet<std::string_view> names;  // views into the parser's strings
  for (const auto [name, value] : object) {
    if (!names.insert(name).second) {
      return corrupt_tensor(file_name, name, "appears twice in the header");
    }
    if (name == "__metadata__") {
      continue;
    }
    STATOR_TRY(TensorInfo tensor, parse_tensor(file_name, name, value));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace

size_t dtype_bytes(Dtype dtype) {
  return kDtypes[static_cast<size_t>(dtype)].bytes;
}
std::string_view to_string(Dtype dtype) {
  return kDtypes[static_cast<size_t>(dtype)].name;
}

Result<std::vector<TensorInfo>> parse_safetensors_header(std::span<const std::byte> file,
                                                         std::string_view file_name) {
  STATOR_TRY(const uint64_t header_bytes, read_header_bytes(file, file_name));
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + kPrefixBytes,
                                header_bytes);
  STATOR_TRY(std::vector<TensorInfo> tensors, parse_entries(header, file_name));
  std::ranges::sort(tensors, [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  const uint64_t data_begin = kPrefixBytes + header_bytes;
  STATOR_CHECK(check_coverage(file_name, tensors, file.size() - data_begin));
  for (TensorInfo& tensor : tensors) {
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  return tensors;
}

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
  Checkpoint checkpoint;
  const std::string single = folder + "/model.safetensors";
  const std::string index = folder + "/model.safetensors.index.json";
  std::error_code ignored;
  if (std::filesystem::exists(index, ignored)) {
    STATOR_CHECK(checkpoint.open_shards(folder, index));
  } else if (std::filesystem::exists(single, ignored)) {
    STATOR_CHECK(checkpoint.add_file(single));
  } else {
    return Error(
        Code::kNotFound,
        fmt::format("{} has neither model.safetensors nor model.safetensors.index.json", folder));
  }
  return checkpoint;
}

Status Checkpoint::add_file(const std::string& path) {
  STATOR_TRY(io::MappedFile file, io::MappedFile::open(path));
  STATOR_TRY(std::vector<TensorInfo> tensors, parse_safetensors_header(file.bytes(), path));
  for (TensorInfo& tensor : tensors) {
    const auto bytes = file.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
    TensorView view{
        .dtype = tensor.dtype, .shape = std::move(tensor.shape), .bytes = bytes, .mapped = true};
    if (!tensors_.emplace(tensor.name, std::move(view)).second) {
      return corrupt_tensor(path, tensor.name, "is also in another shard");
    }
  }
  files_.push_back(std::move(file));
  return {};
}

Status Checkpoint::open_shards(const std::string& folder, const std::string& index_path) {
  STATOR_TRY(const io::MappedFile index, io::MappedFile::open(index_path));
  if (index.bytes().size() > kIndexBytesMax) {
    return corrupt(index_path, fmt::format("larger than {} bytes", kIndexBytesMax));
  }
  dom::parser parser;
  dom::object map;
  // An empty file has no address, which the parser must not see.
  if (index.bytes().empty() ||
      parser.parse(reinterpret_cast<const char*>(index.bytes().data()), index.bytes().size())
              .at_key("weight_map")
              .get(map) != simdjson::SUCCESS) {
    return corrupt(index_path, "no JSON object with a weight_map");
  }
  std::set<std::string> shards;  // ordered: messages do not depend on hashing
  for (const auto [tensor, value] : map) {
    std::string_view shard;
    if (value.get(shard) != simdjson::SUCCESS || shard.empty() || shard.contains('/') ||
        shard.contains('\0') || shard == "." || shard == "..") {
      return corrupt_tensor(index_path, tensor, "its file is not the name of a file in the folder");
    }
    shards.emplace(shard);
    if (shards.size() > kShardsMax) {
      return corrupt(index_path, fmt::format("more than {} shards", kShardsMax));
    }
  }
  for (const std::string& shard : shards) {
    STATOR_CHECK(add_file(folder + "/" + shard));
  }
  for (const auto [tensor, value] : map) {
    if (!tensors_.contains(tensor)) {
      return corrupt_tensor(index_path, tensor, "is in none of the shards");
    }
  }
  return {};
}

}  // namespace stator::engine::cpu
