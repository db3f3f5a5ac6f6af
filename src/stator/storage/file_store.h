// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stator/storage/block_store.h"

namespace stator::storage {

/// Blocks as files of a folder that several hosts share (G4): one file per block, written beside
/// its name and renamed, so that readers see all of it or nothing. No locks: two writers of one
/// name write the same bytes. Nothing is evicted here; remove old files from outside.
class FileStore final : public BlockStore {
 public:
  /// `folder` is made if it is missing.
  FileStore(std::string folder, const Digest& space);

  std::string_view tier() const override { return "object"; }
  /// kIo, naming the folder, if nothing can be written there.
  Status check();
  Result<size_t> count(std::span<const BlockName> names) override;
  Status get(const BlockName& name, std::span<std::byte> record) override;
  Status put(const BlockName& name, std::span<const std::byte> record) override;

 private:
  std::string path(const BlockName& name) const;

  const std::string folder_;
  const Digest space_;
};

}  // namespace stator::storage
