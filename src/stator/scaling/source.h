// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/scaling/page_observer.h"

namespace stator::scaling {

/// Where metrics come from. Used by the planner's thread, may block for as long as its timeout.
class Source {
 public:
  virtual ~Source() = default;
  /// Gives the observer what there is, or says that it failed.
  virtual void look(PageObserver& observer) = 0;
};

/// `GET URL/metrics` of each frontend.
std::unique_ptr<Source> make_page_source(std::vector<std::string> urls, Duration timeout);
/// The page of this process.
std::unique_ptr<Source> make_own_source(std::function<std::string()> render);

struct PrometheusOptions {
  std::string url;           ///< http://host:9090
  std::string token_file;    ///< read before each query
  std::string token;         ///< used without a file
  std::string ca_path;       ///< PEM
  bool insecure = false;     ///< any certificate
  std::string query_params;  ///< "tenant=a&dedup=true", added to each query
  Duration timeout = std::chrono::seconds(10);
};
std::unique_ptr<Source> make_prometheus_source(PrometheusOptions options,
                                               const ObserverConfig& observer);

}  // namespace stator::scaling
