// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/epp/pool.h"

namespace stator::epp {

struct ScrapeConfig {
  Duration interval = std::chrono::milliseconds(500);  ///< between two readings of an endpoint
  Duration timeout = std::chrono::seconds(1);          ///< of one
  std::string path = "/metrics";
  uint16_t port = 0;  ///< 0: the endpoint's own
};

/// Reads the metrics of a pool's endpoints again and again, on threads of its own, and tells the
/// pool. Endpoints that do not answer are asked less and less often, at least each half minute.
/// Ends within a timeout when it goes.
class ServerScraper {
 public:
  virtual ~ServerScraper() = default;
};
/// `pool`, `clock` and `metrics` outlive it.
std::unique_ptr<ServerScraper> start_scraping(ScrapeConfig config, EndpointPool& pool, Clock& clock,
                                              Metrics& metrics);

}  // namespace stator::epp
