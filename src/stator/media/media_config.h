// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/config.h"

namespace stator::media {

/// What clients may make this process fetch and hold.
struct MediaConfig {
  /// Hosts that URLs may name, with commas between them: "images.example", "*.cdn.example" (those
  /// below it), "images.example:8443". Empty: every public one.
  std::string allowed_hosts;
  /// Addresses inside, bare addresses and any port: only where every client is trusted.
  bool allow_private = false;
  std::string local_folder;                  ///< file: URLs below it are read; empty: none
  uint64_t bytes_max = 10ULL << 20;          ///< of one item
  uint64_t request_bytes_max = 12ULL << 20;  ///< of all items of a request
  uint64_t held_bytes_max = 512ULL << 20;    ///< of all requests together
  uint64_t image_pixels_max = 1ULL << 25;    ///< width × height by its header
  uint32_t items_max = 32;                   ///< of one request
  uint32_t redirects_max = 3;
  uint32_t fetches_max = 64;                    ///< at once, in this process
  Duration timeout = std::chrono::seconds(30);  ///< of one fetch, redirects and waiting included
  Duration connect_timeout = std::chrono::seconds(5);
  uint64_t cache_bytes = 64ULL << 20;            ///< of fetched items; 0: none are kept
  Duration cache_ttl = std::chrono::minutes(1);  ///< how long one is not asked for again
  std::string user_agent = "stator-media/1";
};

/// Declares them under media.*.
void describe(ConfigSchema& schema, MediaConfig& config);

}  // namespace stator::media
