// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/transfer/agent.h"
#include "stator/transfer/metadata_place.h"
#include "stator/weights/manifest.h"

namespace stator::weights {

/// How far a source is. Ready ones may be read; a source that does not renew its offer for
/// kStaleAfter is as good as gone.
enum class SourceStatus : uint8_t { kInitializing, kReady, kStale };
inline constexpr Duration kHeartbeat = std::chrono::seconds(30);
inline constexpr Duration kStaleAfter = std::chrono::seconds(90);

/// What a source tells those who look for weights, small: the manifest lies in its memory.
struct Offer {
  std::string source_id;  ///< SourceIdentity::id()
  std::string worker;     ///< name of its transfer agent, unique
  uint32_t rank = 0;
  std::string accelerator;  ///< of the bytes' layout; must be equal, "" on CPUs
  SourceStatus status = SourceStatus::kInitializing;
  uint64_t unix_ms = 0;  ///< of the last renewal
  std::string metadata;  ///< of the agent, how to reach it and what may be read
  transfer::Desc arena;
  transfer::Desc manifest;
  uint32_t manifest_crc = 0;
  friend bool operator==(const Offer&, const Offer&) = default;
};
std::string encode(const Offer& offer);
/// kCorrupt.
Result<Offer> decode_offer(std::string_view bytes);

/// Ready offers of this identity, rank and accelerator that were renewed lately. `place` lists.
Result<std::vector<Offer>> find_offers(transfer::MetadataPlace& place, const std::string& source_id,
                                       uint32_t rank, std::string_view accelerator, Clock& clock);

/// Weights in this process that others may copy: an arena of a transfer agent, its manifest beside
/// it, and the offer that says so. Takes the offer back when it goes.
class PeerSource {
 public:
  struct Options {
    std::string name;  ///< of the agent: unique among all sources
    uint32_t rank = 0;
    std::string accelerator;
    std::vector<std::string> backends = {"shm", "tcp"};
    std::string listen_host = "127.0.0.1";  ///< of tcp
  };
  /// kUnavailable: a backend does not start.
  static Result<std::unique_ptr<PeerSource>> create(Options options, uint64_t arena_bytes,
                                                    Clock& clock, Metrics& metrics);
  ~PeerSource();
  PeerSource(const PeerSource&) = delete;
  PeerSource& operator=(const PeerSource&) = delete;

  /// To be filled before publish(): by reading files, or by pull().
  std::span<std::byte> arena() { return arena_; }
  transfer::Agent& agent() { return agent_; }
  const transfer::Desc& arena_range() const { return arena_range_; }

  /// Offers what is in the arena. `manifest` has its checksums. `place` outlives this.
  Status publish(transfer::MetadataPlace& place, const Manifest& manifest);
  /// Renews the offer; every kHeartbeat.
  Status renew();

 private:
  PeerSource(Options options, Clock& clock, Metrics& metrics);

  const Options options_;
  Clock& clock_;
  transfer::Agent agent_;
  std::span<std::byte> arena_;
  transfer::Desc arena_range_;
  transfer::MetadataPlace* place_ = nullptr;
  Offer offer_;
};

/// Where an offer of this source is left.
std::string offer_name(std::string_view source_id, std::string_view worker);

}  // namespace stator::weights
