// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/storage/block_name.h"

namespace stator::storage {

/// "PREFIX/NAMESPACE/SHARD/LINEAGE.t1r0": where a block lies in an object store or a shared folder.
/// The shard is the first byte of the sequence hash in hex, so that folders and partitions stay
/// small; the part says that one rank of one holds all heads.
std::string object_key(std::string_view prefix, const Digest& space, const kv::LineageHash& name);

}  // namespace stator::storage
