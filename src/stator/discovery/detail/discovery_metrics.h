// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/core/metrics.h"

namespace stator::discovery::detail {

/// What every store of instances counts, whichever it is. Values are safe to change from any
/// thread.
struct DiscoveryMetrics {
  explicit DiscoveryMetrics(Metrics& metrics)
      : instances(
            metrics.gauge("stator_runtime_discovery_instances", "instances in the discovery view")),
        bad_records(metrics.counter("stator_runtime_discovery_bad_records_total",
                                    "records that do not parse; the previous value is kept")),
        resyncs(metrics.counter("stator_runtime_discovery_resyncs_total",
                                "full re-reads because change notices were lost")),
        leases_lost(metrics.counter("stator_runtime_discovery_leases_lost_total",
                                    "own records that somebody removed; published again")),
        errors(metrics.counter("stator_runtime_discovery_errors_total",
                               "failed calls to the discovery store")) {}
  Gauge instances;
  Counter bad_records;
  Counter resyncs;
  Counter leases_lost;
  Counter errors;
};

}  // namespace stator::discovery::detail
