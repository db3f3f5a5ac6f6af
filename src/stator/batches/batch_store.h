// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/batches/batch_config.h"
#include "stator/core/flat_map.h"
#include "stator/core/random.h"
#include "stator/core/result.h"
#include "stator/io/journal.h"
#include "stator/json/value.h"

namespace stator::batches {

/// A file or a batch: its object as the API shows it, and what clients do not see.
struct Entry {
  enum class Kind : uint8_t { kFile, kBatch };
  Kind kind = Kind::kFile;
  json::Value object;
  std::string owner;          ///< whose it is; empty: everybody's
  int64_t output_keep_s = 0;  ///< of a batch's results

  std::string_view id() const { return object.text_at({"id"}); }
  std::string_view status() const { return object.text_at({"status"}); }
  int64_t number(std::string_view key) const;
};

/// Whether a batch has work left: in_progress, finalizing or cancelling.
bool is_open(const Entry& batch);

/// Files and batches in a folder: `batches.journal` has the entries, `files/<id>` the contents.
///
/// D1  What add_file() and save() took is there after a power cut.
/// D2  A file's entry never stands without its content.
/// D3  Bounds of BatchConfig hold after every call.
///
/// One thread.
class BatchStore {
 public:
  /// Errors as io::Journal::open.
  static Result<std::unique_ptr<BatchStore>> open(const BatchConfig& config, int64_t now_s);

  struct NewFile {
    std::string owner;
    std::string filename;
    std::string purpose;
    std::string_view content;
    int64_t expires_s = 0;  ///< 0: never
  };
  /// kTooLarge beyond the folder's bounds, kIo.
  Result<const Entry*> add_file(const NewFile& file, int64_t now_s);
  /// A file whose content is at path_of(id) already.
  Status adopt_file(std::string_view id, const NewFile& file, uint64_t bytes, int64_t now_s);
  /// Adds or replaces; of a batch, forgets the oldest ended ones beyond the bound.
  Status save(Entry entry);
  Status erase(std::string_view id);

  /// Null: there is none, or it is another's.
  const Entry* find(Entry::Kind kind, std::string_view id, std::string_view owner) const;
  const Entry* find(std::string_view id) const;
  /// Newest first.
  std::vector<const Entry*> list(Entry::Kind kind) const;
  std::string path_of(std::string_view file_id) const;
  /// Where a batch keeps its results while it runs.
  std::string results_path(std::string_view batch_id) const;
  std::string make_id(std::string_view prefix);
  uint64_t file_bytes() const { return file_bytes_; }

  /// Files that are too old go.
  void expire(int64_t now_s);

 private:
  BatchStore(const BatchConfig& config) : config_(config), random_(Random::from_entropy()) {}
  void take(std::string_view record);
  void insert(Entry entry);
  bool remove(std::string_view id);
  Status compact();
  Status write(const std::string& record);
  void forget_old_batches();

  const BatchConfig& config_;
  Random random_;
  std::map<uint64_t, Entry> entries_;  // by age
  FlatMap<std::string, uint64_t> places_;
  uint64_t last_place_ = 0;
  uint64_t file_bytes_ = 0;
  size_t files_ = 0;
  std::optional<io::Journal> journal_;
};

}  // namespace stator::batches
