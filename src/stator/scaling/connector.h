// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/discovery/etcd_discovery.h"
#include "stator/kube/client.h"

namespace stator::scaling {

/// Sizes of pools; absent: no opinion.
struct PoolTargets {
  std::optional<uint32_t> prefill;
  std::optional<uint32_t> decode;  ///< of the only pool, where nothing is disaggregated
  friend bool operator==(const PoolTargets&, const PoolTargets&) = default;
};

/// What the connector knows of a fleet's sizes; absent: somebody else must tell.
struct PoolCounts {
  std::optional<uint32_t> prefill_ready, decode_ready;
  PoolTargets wanted;
  std::string unstable;  ///< why nothing should be changed now; empty: it may
};

/// Makes a fleet have as many workers as the planner wants. Used by one thread.
class Connector {
 public:
  virtual ~Connector() = default;
  virtual std::string_view name() const = 0;
  virtual Result<PoolCounts> counts() = 0;
  /// kUnavailable: not now, with the reason; it is asked again at the next tick.
  virtual Status set(const PoolTargets& targets, std::string_view reason) = 0;
  /// Called often: looks after what it started.
  virtual void poll() {}
  /// Ends what it started, before the connector goes.
  virtual void stop() {}
};

/// Where the targets of the virtual connector are written: keys of an etcd, or files of a folder.
class KeyStore {
 public:
  virtual ~KeyStore() = default;
  /// Empty: not there.
  virtual Result<std::string> get(std::string_view key) = 0;
  virtual Status put(std::string_view key, std::string_view value) = 0;
};
/// Files named by the keys; each is replaced whole.
Result<std::unique_ptr<KeyStore>> open_folder_store(const std::string& folder);
/// Keys v1/NAMESPACE/planner/KEY, where Dynamo's own executors look.
Result<std::unique_ptr<KeyStore>> open_etcd_store(const discovery::EtcdOptions& options,
                                                  std::string_view name_space);

struct VirtualOptions {
  Duration wait_max = std::chrono::seconds(1800);  ///< for an executor, before going on anyway
};
/// The reference's virtual environment: an executor of the user's reads `num_prefill`, `num_decode`
/// and `decision_id`, does it, and writes `scaled_decision_id`. The first two are written as
/// `num_prefill_workers` and `num_decode_workers`, too: the names that Dynamo's own client reads. A
/// new decision waits until the last one was carried out.
std::unique_ptr<Connector> make_virtual_connector(std::unique_ptr<KeyStore> store,
                                                  VirtualOptions options, const Clock& clock);

struct ProcessOptions {
  std::vector<std::string> command;          ///< of one worker
  std::vector<std::string> prefill_command;  ///< of one that only computes prompts; empty: none
  Duration stop_timeout = std::chrono::seconds(35);  ///< from SIGTERM to SIGKILL
  uint32_t processes_max = 256;
};
/// Starts workers as child processes and drains the youngest ones with SIGTERM. One that ends by
/// itself is started again, after a pause that doubles up to 30 s.
std::unique_ptr<Connector> make_process_connector(ProcessOptions options, const Clock& clock,
                                                  Metrics& metrics);

struct KubeOptions {
  kube::ObjectName graph;
  std::string prefill_component, decode_component;  ///< empty: found by their type
};
/// PATCHes the scale subresource of a DynamoGraphDeploymentScalingAdapter, or the graph where there
/// is none. `client` outlives it.
std::unique_ptr<Connector> make_kube_connector(KubeOptions options, kube::Client& client);

struct GlobalOptions {
  std::string url;  ///< of a `stator planner --global`
  std::string caller_namespace, graph, kube_namespace;
};
/// Asks a global planner for every change.
std::unique_ptr<Connector> make_global_connector(GlobalOptions options);

}  // namespace stator::scaling
