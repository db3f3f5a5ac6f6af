// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/storage/block_store.h"
#include "stator/storage/sigv4.h"

namespace stator::storage {

/// Where blocks are shared between hosts (G4), as an operator writes it.
struct ObjectStoreOptions {
  /// "s3://BUCKET/PREFIX", "az://CONTAINER/PREFIX", or "file:///FOLDER" on a shared file system
  std::string url;
  /// Of another S3 server than Amazon's: "http://HOST:PORT"; of another Azure:
  /// "http://HOST:PORT/ACCOUNT"
  std::string endpoint;
  /// For az: the account, its key, a SAS token.
  AwsCredentials credentials;
};

/// Null, and said once in the log and in `stator_kv_tier_enabled`, when it cannot be used. One that
/// does not answer yet is opened all the same. kInvalidArgument: no such URL. Blocks on the
/// network.
Result<std::unique_ptr<BlockStore>> open_object_store(const ObjectStoreOptions& options,
                                                      const Digest& space, Clock& clock,
                                                      Metrics& metrics);

}  // namespace stator::storage
