// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "stator/access/access_config.h"
#include "stator/app/cpu_settings.h"
#include "stator/app/event_carrier.h"
#include "stator/app/kv_settings.h"
#include "stator/core/config.h"
#include "stator/core/result.h"
#include "stator/discovery/etcd_discovery.h"
#include "stator/engine/core/engine_config.h"
#include "stator/engine/sim/sim_faults.h"
#include "stator/engine/sim/sim_knobs.h"
#include "stator/frontend/frontend_config.h"
#include "stator/net/tls_files.h"
#include "stator/router/router.h"
#include "stator/telemetry/telemetry_config.h"
#include "stator/weights/hub.h"

namespace stator::app {

/// TLS between frontends and workers.
struct RpcSettings {
  std::string certificate;
  std::string key;
  std::string ca;
  std::string allowed_callers;  ///< list with commas
  std::string server_name;
  bool insecure = false;  ///< plain connections from other machines are meant

  /// None: plain. kInvalidArgument unless all three files are named, or none of all this.
  Result<std::optional<net::TlsFiles>> tls() const;
  /// kInvalidArgument if other machines reach `host`, the address in `setting` of a service for our
  /// own processes, without TLS and without that being meant.
  Status check_reach(std::string_view setting, std::string_view host) const;
};

/// How to reach engine servers that somebody else runs.
struct EngineServerSettings {
  std::string url;  ///< list with commas
  std::string api_key;
  std::string upstream_model;  ///< name the server knows the model by; empty: its first
  std::string events = "auto";
  std::string events_replay;
  std::string events_topic;
  std::string vllm_route = "completions";
  std::string handoff = "nixl";
  Duration handoff_lease = std::chrono::seconds(30);
  Duration connect_timeout = std::chrono::seconds(5);
  Duration stall_timeout = std::chrono::seconds(120);
  Duration ready_timeout = std::chrono::minutes(10);
  Duration poll_interval = std::chrono::seconds(1);
  Duration silence_timeout = std::chrono::seconds(8);
  Duration stop_timeout = std::chrono::seconds(30);
};

/// How a frontend comes to its port, and leaves it.
struct PortSettings {
  bool share = false;                             ///< join a process that serves the port already
  Duration join_wait = std::chrono::seconds(30);  ///< for workers, before it accepts beside others
  Duration lame_duck = std::chrono::seconds(5);   ///< SIGTERM: served on, with /health at 503
};

/// Where operators reach a process with workers.
struct SystemSettings {
  int32_t port = -1;  ///< -1: nowhere; 0: any free one
  std::string host = "127.0.0.1";
  std::string
      token;  ///< bearer token of everything that changes something; empty: nobody needs one
  std::string allowed_hosts;  ///< its names beside localhost and addresses, with commas
};

/// Where operators reach a frontend.
struct AdminSettings {
  int32_t port = -1;  ///< -1: on the public port; 0: any free one
  std::string host = "127.0.0.1";
  std::string allowed_hosts;  ///< its names beside localhost and addresses, with commas
};

/// What a fleet's processes call themselves, so that several fleets may share a store.
struct NamespaceSettings {
  std::string name;           ///< empty: workers join "dynamo", frontends serve every one
  std::string prefix;         ///< frontends serve the namespaces that begin so; goes before `name`
  std::string worker_suffix;  ///< workers join "name-suffix"

  std::string of_workers() const;   ///< that workers join
  std::string of_frontend() const;  ///< frontend::FrontendConfig::worker_namespace
  std::string shown() const;        ///< label dynamo_namespace of a frontend's metrics
};

/// Workers of our engines that compute prompts for others, or go on from theirs.
struct HandoffSettings {
  uint32_t prefill_workers = 0;
  uint32_t decode_workers = 0;                  ///< both 0: all workers are what worker.role says
  uint64_t bytes = uint64_t{256} << 20;         ///< of prompts not fetched yet, per prefill worker
  Duration timeout = std::chrono::seconds(30);  ///< decode workers wait so long for a prompt

  uint32_t workers() const { return prefill_workers + decode_workers; }
};

/// Everything about the workers of a process.
struct WorkerSettings {
  std::string engine = "cpu";
  std::string role = "auto";  ///< list with commas, one for each engine server
  uint32_t count = 0;         ///< 0: as usual for the command
  std::string model_name;     ///< served name; empty: from the path
  std::string aliases;        ///< further names, a list with commas
  std::string taints;         ///< what requests may demand, a list with commas
  std::string chat_template;  ///< file in place of the model's own; empty: none
  std::string default_thinking_mode = "auto";
  std::string component;              ///< empty: "prefill" by role, else "backend"
  std::string endpoint = "generate";  ///< or dyn://NAMESPACE.COMPONENT.ENDPOINT
  std::string media = "auto";         ///< what the model takes beside text, see settings.cc
  std::string task = "auto";          ///< what the model is for, see settings.cc
  uint32_t sim_vector_width = 384;    ///< numbers of a simulated embedding
  std::string tool_call_parser = "auto";
  std::string reasoning_parser = "auto";
  std::string listen_host = "127.0.0.1";
  uint16_t port = 0;                                  ///< gRPC, `worker` only
  Duration drain_timeout = std::chrono::seconds(25);  ///< `worker` only
  uint64_t kv_cache_bytes = 256ULL << 20;  ///< per worker, cpu engine; touched only as used
  uint32_t threads = 1;                    ///< per worker, cpu engine
  CpuSettings cpu;
  engine::EngineConfig engine_config;
  HandoffSettings handoff;      ///< for engines of ours
  EngineServerSettings server;  ///< for engines that are servers
  engine::SimKnobs sim;
  engine::SimFaults sim_faults;
  uint32_t sim_dp_size = 1;     ///< data-parallel ranks of a simulated engine
  Duration sim_startup_time{};  ///< until it takes requests
  std::string sim_reply;        ///< file with what the simulated engine says; empty: drawn tokens
};

/// All settings of the binary: one schema for flags, environment, YAML and docs.
struct Settings {
  std::string log_format = "human";
  std::string log_filter = "info";
  std::string discovery = "memory";  ///< "memory", "file:DIR" or "etcd://…"
  NamespaceSettings spaces;
  discovery::EtcdOptions etcd;  ///< what the address of the store does not say
  Duration lease_ttl = std::chrono::seconds(10);
  EventSettings events;
  bool announce = false;  ///< print one JSON line on stdout when ready
  frontend::FrontendConfig frontend;
  router::RouterConfig router;
  WorkerSettings worker;
  KvSettings kv;
  weights::HubConfig hub;
  PortSettings port;
  RpcSettings rpc;
  SystemSettings system;
  AdminSettings admin;
  access::AccessConfig access;
  telemetry::TelemetryConfig telemetry;
};

/// check_budgets() for a process that has `usual_workers` workers unless worker.count says
/// otherwise.
Status check_kv_budgets(const Settings& settings, uint32_t usual_workers);

/// Declares every setting. `settings` outlives the schema.
void describe(ConfigSchema& schema, Settings& settings);
/// After loading: what settings of one section say about another. kInvalidArgument for an endpoint
/// that cannot be read.
Status settle(Settings& settings);

}  // namespace stator::app
