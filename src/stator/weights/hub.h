// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "stator/core/config.h"
#include "stator/core/result.h"

namespace stator::weights {

/// Where models come from when MODEL is not a folder.
struct HubConfig {
  std::string endpoint = "https://huggingface.co";
  std::string cache_dir;  ///< empty: $HF_HOME/hub, else ~/.cache/huggingface/hub
  std::string revision = "main";
  std::string token;     ///< for gated models; never logged
  bool offline = false;  ///< only what the cache has
};

/// Declares them under hub.*; the usual HF_* variables are read, too.
void describe(ConfigSchema& schema, HubConfig& config);

/// Told about a running download: file name, bytes so far, bytes in all (0 = unknown).
using HubProgress = std::function<void(std::string_view file, uint64_t done, uint64_t total)>;

/// What holds MODEL: itself if it is a folder or a .gguf file, else "ORG/NAME" looked up in the
/// Hugging Face cache layout (models--ORG--NAME/refs, snapshots, blobs) and downloaded there when
/// missing, with resume of partial files and verification of their checksums. Blocking.
///
/// kNotFound: neither a folder nor a model the hub or the cache knows; kInvalidArgument: another
/// file or not a possible name; kUnavailable: hub not reachable; kCorrupt: checksum mismatch after
/// download (the bad file is removed). Messages say what to change.
Result<std::string> resolve_model(const std::string& model, const HubConfig& config,
                                  const HubProgress& progress);

}  // namespace stator::weights
