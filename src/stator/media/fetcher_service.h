// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/media/blob.h"
#include "stator/media/media_config.h"
#include "stator/media/resolver_service.h"
#include "stator/net/byte_budget.h"

namespace stator::media {

/// One part of a request whose source is elsewhere.
struct Wanted {
  inference::MediaKind kind = inference::MediaKind::kImage;
  std::string source;  ///< an http:, https: or file: URL
  std::string path;    ///< of the part, for errors
};

/// Which part of a load could not be had, and why; the text follows the part's path.
struct LoadError {
  Error error;
  std::string path;
};

/// Fetches what clients' URLs name, for the whole process, on one thread of its own (and the
/// resolver's).
///
/// M1  A source is fetched from an address only if UrlRules let the URL and every address of its
///     host pass; it connects to those addresses and no other. Each redirect begins anew.
/// M2  At most MediaConfig::fetches_max fetches run, kWaitingMax wait; beyond: kOverloaded.
/// M3  A load is told once how it went, on the fetcher's thread, or is cancelled. A fetch that
///     nobody waits for ends at once, with its connection.
/// M4  Equal sources of one kind that are under way are one fetch.
/// M5  What is under way and what requests hold together is charged to `budget`.
///
/// Sources are checked for what they are (make_blob) here, so that loops and pools do not have to.
class Fetcher {
 public:
  static constexpr size_t kWaitingMax = 4096;

  using LoadId = uint64_t;
  using LoadDone =
      std::move_only_function<void(std::expected<std::vector<BlobPtr>, LoadError> blobs)>;

  /// `lookup` replaces the system's resolver, in tests. All references outlive it. Errors: of
  /// UrlRules::create, or kIo.
  static Result<std::unique_ptr<Fetcher>> create(const MediaConfig& config, net::ByteBudget& budget,
                                                 const Clock& clock, Metrics& metrics,
                                                 Resolver::Lookup lookup = {});
  Fetcher() = default;
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;
  /// Loads that are under way are not told.
  virtual ~Fetcher() = default;

  /// Any thread. Blobs come in the order of `wanted`.
  virtual LoadId load(std::vector<Wanted> wanted, LoadDone done) = 0;
  /// Any thread. `done` may still be called if it is on its way. Unknown loads are ignored.
  virtual void cancel(LoadId load) = 0;
};

}  // namespace stator::media
