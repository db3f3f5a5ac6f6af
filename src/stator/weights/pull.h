// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/transfer/agent.h"
#include "stator/weights/manifest.h"
#include "stator/weights/peer_source.h"

namespace stator::weights {

struct PullOptions {
  uint32_t sources_max = 3;  ///< tried one after the other
  uint32_t chunks_max = 4;   ///< under way at once
  Duration chunk_deadline = std::chrono::seconds(30);
  uint32_t reads_of_a_chunk = 2;  ///< a chunk whose checksum is wrong is read once more
  /// Bytes that are there so far.
  std::function<void(uint64_t bytes)> progress;
};

/// What came, from whom.
struct Pulled {
  std::vector<std::string> sources;  ///< that gave chunks, the last one gave the rest
  Manifest manifest;
  uint64_t bytes = 0;
  uint32_t damaged_chunks = 0;  ///< that were read again
};

/// Copies weights from sources into `target`, registered memory of `agent`, as large as the arena.
/// Sources are tried in an order of their own for each target (rendezvous hashing), so that many
/// targets spread over them; what one has given stays when it is lost, if the next one's checksums
/// say that it has the same. Nothing is reported that was not checked. kNotFound: no source is
/// left; the message has the last one's fault. `wanted`: pieces that must be equal; without pieces
/// the identity alone decides. Blocks.
Result<Pulled> pull(transfer::Agent& agent, std::span<std::byte> target, const Manifest& wanted,
                    std::vector<Offer> offers, const PullOptions& options = {});

/// The manifest of one offer, read from its source and checked.
Result<Manifest> fetch_manifest(transfer::Agent& agent, const Offer& offer,
                                const PullOptions& options = {});

/// Offers in the order in which `target` tries them.
std::vector<Offer> rendezvous(std::vector<Offer> offers, std::string_view target);

}  // namespace stator::weights
