// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/net/http_client.h"

namespace stator::cli {

/// How full one KV tier is.
struct TierUse {
  std::string tier;
  double blocks = 0;
  double blocks_max = 0;  ///< 0: without a bound of ours
  double bytes = 0;
  double integrity_errors = 0;
  bool enabled = true;
};

/// A bar for each tier, for a terminal.
std::string draw_tiers(const std::vector<TierUse>& tiers);

/// What the /metrics of a server say of its tiers, summed over its workers; the fastest tier first.
struct ServerTiers {
  std::vector<TierUse> tiers;
  std::string disk_folder;  ///< empty: none
};
ServerTiers read_tiers(std::string_view metrics_page);
/// kUnavailable and others from the request; kNotFound: nothing there speaks of KV blocks.
Result<ServerTiers> fetch_tiers(const std::string& url, const net::HttpHeaderList& headers);

}  // namespace stator::cli
