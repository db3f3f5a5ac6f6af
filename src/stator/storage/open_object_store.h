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
  std::string url;       ///< "s3://BUCKET/PREFIX", or "file:///FOLDER" on a shared file system
  std::string endpoint;  ///< of another S3 server than Amazon's: "http://HOST:PORT"
  AwsCredentials credentials;
};

/// Null, and said once in the log and in `stator_kv_tier_enabled`, when it cannot be used. One that
/// does not answer yet is opened all the same. kInvalidArgument: no such URL. Blocks on the
/// network.
Result<std::unique_ptr<BlockStore>> open_object_store(const ObjectStoreOptions& options,
                                                      const Digest& space, Clock& clock,
                                                      Metrics& metrics);

}  // namespace stator::storage
