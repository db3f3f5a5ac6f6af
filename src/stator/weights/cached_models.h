// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/weights/hub.h"

namespace stator::weights {

/// A model in the Hugging Face cache.
struct CachedModel {
  std::string name;    ///< "ORG/NAME"
  std::string path;    ///< its folder in the cache
  uint64_t bytes = 0;  ///< on disk, partial downloads included
  uint64_t partial_bytes = 0;
  uint64_t files = 0;
  bool can_be_served = false;  ///< hub.revision has all it needs
};

/// What is in the cache, by name. A cache that does not exist is empty. Blocking.
Result<std::vector<CachedModel>> list_cached_models(const HubConfig& config);

/// Removes one model with all its revisions, and says how many bytes that freed. kNotFound: it is
/// not there; kInvalidArgument: no name the hub could have.
Result<uint64_t> remove_cached_model(const std::string& name, const HubConfig& config);

}  // namespace stator::weights
