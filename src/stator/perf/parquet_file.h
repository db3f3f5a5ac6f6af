// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stator/core/result.h"

namespace stator::perf {

/// A table read from a Parquet file: the flat columns that performance databases have. Only what
/// those files use is understood: int64, int32, double, float, boolean and string columns, required
/// or optional; plain and dictionary pages of version 1; uncompressed or zstd. Anything else is
/// kUnsupported, and the message says what it was.
/// Source: the Apache Parquet format, parquet.thrift and Encodings.md.
class ParquetFile {
 public:
  using Numbers = std::vector<double>;     ///< NaN where absent
  using Texts = std::vector<std::string>;  ///< empty where absent
  using Column = std::variant<Numbers, Texts>;

  /// Reads all columns. kNotFound, kIo, kInvalidArgument for a damaged file. At most
  /// kParquetBytesMax, and kParquetRowsMax rows.
  static Result<ParquetFile> read(const std::string& path);
  static Result<ParquetFile> parse(std::string_view bytes, std::string_view name);

  uint64_t rows() const { return rows_; }
  /// kNotFound names the file, the column that is missing and those that are there.
  Result<std::span<const double>> numbers(std::string_view column) const;
  Result<std::span<const std::string>> texts(std::string_view column) const;
  bool has(std::string_view column) const { return find(column) != nullptr; }

 private:
  struct Named {
    std::string name;
    Column values;
  };
  const Column* find(std::string_view column) const;
  Error missing(std::string_view column, std::string_view kind) const;

  std::string name_;
  uint64_t rows_ = 0;
  std::vector<Named> columns_;
};

inline constexpr uint64_t kParquetBytesMax = 256ULL << 20;
inline constexpr uint64_t kParquetRowsMax = 50'000'000;

}  // namespace stator::perf
