// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/router/advisor.h"

namespace stator::frontend {

struct SharedCacheConfig {
  std::string url;  ///< http://host:port of a `stator store`, or of another cache that answers so
  Duration timeout = std::chrono::milliseconds(20);
};

/// A cache that all workers can load from, asked before each decision how much of the prompt it
/// has, so that the router need not send a request where its prefix is (POST /check_blocks
/// {"block_hashes":[…]} → {"ranges":[[first, behind last], …]}). It names no worker.
///
/// An AskedServer, with its pauses. At most kAskedMax questions are open; further requests are
/// decided without it.
class SharedCache : public router::Advisor {
 public:
  static constexpr size_t kAskedMax = 4096;

  /// kInvalidArgument for a URL that cannot be one. `clock` and `metrics` outlive it.
  static Result<std::shared_ptr<SharedCache>> start(const SharedCacheConfig& config,
                                                    const Clock& clock, Metrics& metrics);
};

/// Blocks of the prompt's beginning that an answer's ranges cover without a hole; nothing: it is
/// none of the form.
std::optional<uint32_t> read_shared_ranges(std::string_view body);

}  // namespace stator::frontend
