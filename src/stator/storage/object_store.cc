// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/object_store.h"

#include "stator/storage/object_key.h"

namespace stator::storage {

ObjectStore::ObjectStore(std::unique_ptr<ObjectDialect> dialect, ObjectClientOptions options,
                         const Digest& space, Clock& clock, Metrics& metrics)
    : client_(std::move(dialect), std::move(options), clock, metrics), space_(space) {}

std::string ObjectStore::key(const BlockName& name) const {
  return object_key(client_.options().prefix, space_, name.lineage);
}

Result<size_t> ObjectStore::count(std::span<const BlockName> names) {
  size_t there = 0;                // the first `there` are
  size_t gone = names.size() + 1;  // number `gone`, counted from 1, is not
  size_t asked = 1;                // mostly nothing is, or all of it
  while (gone - there > 1) {
    STATOR_TRY(const bool found, client_.has(key(names[asked - 1])));
    (found ? there : gone) = asked;
    asked = there + (gone - there) / 2;
  }
  return there;
}

Status ObjectStore::get(const BlockName& name, std::span<std::byte> record) {
  return client_.get(key(name), record);
}

Status ObjectStore::put(const BlockName& name, std::span<const std::byte> record) {
  return client_.put(key(name), record, ObjectClient::Put::kOnlyNew);
}

}  // namespace stator::storage
