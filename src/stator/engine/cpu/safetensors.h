// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/core/result.h"
#include "stator/io/mapped_file.h"

namespace stator::engine::cpu {

// Reading checkpoints in the safetensors format: a little-endian u64 header length, a JSON header
// {name: {dtype, shape, data_offsets}}, then the tensors' bytes without holes.

/// Element types of the format. Only the first three are weights the engine computes with.
enum class Dtype : uint8_t {
  kF32,
  kF16,
  kBf16,
  kF64,
  kI64,
  kU64,
  kI32,
  kU32,
  kI16,
  kU16,
  kI8,
  kU8,
  kBool,
  kF8E4m3,
  kF8E5m2,
  kQ8_0,  ///< this and the following: of GGUF files, in blocks (quantized.h)
  kQ4_0,
  kQ4K,
  kQ6K,
};
/// Bytes of an element; 0 for block formats.
size_t dtype_bytes(Dtype dtype);
std::string_view to_string(Dtype dtype);

/// One entry of a header. Offsets are bytes from the start of the file.
struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<uint64_t> shape;  ///< empty for a scalar
  uint64_t begin = 0;
  uint64_t end = 0;
};

/// A tensor's bytes, row-major. A view: the owner is named where one is handed out. May be
/// unaligned.
struct TensorView {
  Dtype dtype = Dtype::kF32;
  std::vector<uint64_t> shape;
  std::span<const std::byte> bytes;
  bool mapped = false;  ///< in a mapped file: who has copied it gives its pages back
};

/// Tensors by name.
using TensorMap = FlatMap<std::string, TensorView>;

/// Longest header accepted, the limit of the format's reference implementation.
inline constexpr uint64_t kHeaderBytesMax = 100'000'000;

/// Parses and checks the header of a whole file in memory; `file_name` goes into messages.
/// After success every tensor lies inside the file, its length is dtype × shape, names are unique
/// and without NUL, and the tensors fill the data section without overlap or hole. Ordered by
/// offset. Errors: kCorrupt, naming file and tensor (a file cut short says so); kUnsupported for a
/// dtype this build does not know.
Result<std::vector<TensorInfo>> parse_safetensors_header(std::span<const std::byte> file,
                                                         std::string_view file_name);

/// The tensors of a checkpoint folder: `model.safetensors`, or the shards that
/// `model.safetensors.index.json` lists.
///
/// I1  Views stay valid as long as the checkpoint lives; the files are mapped, not read.
class Checkpoint {
 public:
  /// kNotFound if there are neither, else as parse_safetensors_header. An index whose entry is not
  /// in its shard is kCorrupt. At most 1024 shards, all in `folder` itself.
  static Result<Checkpoint> open(const std::string& folder);

  const TensorMap& tensors() const { return tensors_; }

 private:
  Status add_file(const std::string& path);
  Status open_shards(const std::string& folder, const std::string& index_path);

  std::vector<io::MappedFile> files_;
  TensorMap tensors_;
};

}  // namespace stator::engine::cpu
