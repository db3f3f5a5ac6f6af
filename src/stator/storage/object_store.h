// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/storage/block_store.h"
#include "stator/storage/object_client.h"

namespace stator::storage {

/// Blocks as objects of an S3 bucket or a container of Azure's (G4). They are immutable: a second
/// writer is told so and writes nothing. Nothing is evicted here: use the store's lifecycle rules.
/// kPermissionDenied switches the tier off (LowerTiers).
class ObjectStore final : public BlockStore {
 public:
  ObjectStore(std::unique_ptr<ObjectDialect> dialect, ObjectClientOptions options,
              const Digest& space, Clock& clock, Metrics& metrics);

  std::string_view tier() const override { return "object"; }
  Status check() { return client_.check(); }
  /// By bisection: what is there is a prefix, because blocks are uploaded in order. The last one
  /// may be gone when it is asked for.
  Result<size_t> count(std::span<const BlockName> names) override;
  Status get(const BlockName& name, std::span<std::byte> record) override;
  Status put(const BlockName& name, std::span<const std::byte> record) override;

 private:
  std::string key(const BlockName& name) const;

  ObjectClient client_;
  const Digest space_;
};

}  // namespace stator::storage
