// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/io/mapped_file.h"

namespace stator::perf {

/// The tables that are read; their columns, in this order, the last one milliseconds.
enum class OperatorTable : uint8_t {
  kGemm,        ///< dtype, m, n, k
  kContext,     ///< kv dtype, heads, kv heads, head dim, window, tokens, batch
  kGeneration,  ///< kv dtype, heads, kv heads, head dim, window, context, batch
  kMoe,         ///< dtype, top k, experts, hidden, inner, tp, ep, tokens
  kAllReduce,   ///< GPUs, elements
};
inline constexpr size_t kOperatorTables = 5;
std::string_view name_of(OperatorTable table);
size_t columns_of(OperatorTable table);

/// Measured kernels of one GPU under one framework, numbers only: what AIConfigurator's Parquet
/// files have, or one file made of them that is mapped instead of read. Immutable.
class OperatorTables {
 public:
  /// `folder`: AIConfigurator's repository, its systems/data, or the folder of one GPU in that. Of
  /// several versions the newest that has a table is taken, table by table. kNotFound lists what is
  /// there. A table that is missing is no error: see notes().
  static Result<std::shared_ptr<const OperatorTables>> read(const std::string& folder,
                                                            std::string_view system,
                                                            std::string_view backend);
  /// A file of save(). kCorrupt.
  static Result<std::shared_ptr<const OperatorTables>> open(const std::string& path);
  static Result<std::shared_ptr<const OperatorTables>> parse(std::string_view bytes);
  /// Little-endian doubles behind a text header; about a third of the Parquet files' columns.
  std::string save() const;

  /// Row by row, columns_of(table) numbers each.
  std::span<const double> rows(OperatorTable table) const {
    return rows_[static_cast<size_t>(table)];
  }
  /// The number that stands for a precision; -1: none was measured.
  double dtype(std::string_view name) const;
  std::string_view system() const { return system_; }
  std::string_view backend() const { return backend_; }
  /// One line per table: its version, or that it is missing.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  OperatorTables() = default;
  enum class Bytes : uint8_t { kCopied, kMapped };
  static Result<std::shared_ptr<OperatorTables>> decode(std::string_view bytes, Bytes kept);
  double number_of(std::string_view dtype);
  void load(OperatorTable table, const std::string& root, std::string_view backend);

  std::string system_, backend_;
  std::vector<std::string> dtypes_, notes_;
  std::array<std::vector<double>, kOperatorTables> own_;
  std::array<std::span<const double>, kOperatorTables> rows_;
  std::shared_ptr<const void> file_;  // what rows_ may lie in
};

}  // namespace stator::perf
