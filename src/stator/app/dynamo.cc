// SPDX-License-Identifier: Apache-2.0
#include "stator/app/dynamo.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "stator/app/dynamo_flags.h"
#include "stator/core/log.h"

namespace stator::app {
namespace {

struct Known {
  std::string_view name;  ///< ends with '*': all that begin so
  std::string_view advice;
};

constexpr std::string_view kPaths = "no such route; http.paths.* moves those there are";
constexpr std::string_view kPlanes = "frontends and workers speak gRPC; there is nothing to choose";
constexpr std::string_view kDiscovery = "say where workers are found with --discovery";
constexpr std::string_view kLogs = "log.filter and log.format say what is logged and how";
constexpr std::string_view kDrain = "worker.drain_timeout and frontend.drain_timeout bound a drain";
constexpr std::string_view kHealth =
    "workers that fail are asked for a token every frontend.canary_interval until they answer";
constexpr std::string_view kQueues =
    "requests wait in the router: see the router.queue settings of docs/configuration.md";
constexpr std::string_view kEvents = "KV events reach frontends by themselves; see events.* ";
constexpr std::string_view kPieces = "tool calls and reasoning are streamed as they come";
constexpr std::string_view kMedia = "what was fetched is kept by media.cache_bytes";
constexpr std::string_view kLora =
    "adapters are those of engine.lora_folder, or that engine servers announce";
constexpr std::string_view kTiers = "KV tiers are configured by the kv.* settings";
constexpr std::string_view kTraces = "see the request_log.* settings";
constexpr std::string_view kAudit =
    "request_log.audit_log with request_log.audit_content all has requests and answers";
constexpr std::string_view kEngines = "the engine server's own flags decide";
constexpr std::string_view kLearned = "router.prefill_load_model learned needs no estimator";
constexpr std::string_view kMeasured = "use stator profile";
constexpr std::string_view kFetches = "media are fetched as the media.* settings say";
constexpr std::string_view kMadeMedia = "media are not generated here";
constexpr std::string_view kPools = "one frontend routes to all pools that it finds";
constexpr std::string_view kThreads = "stator_frontend_* metrics show how long loops are busy";
constexpr std::string_view kAgents = "use --router-session-affinity-ttl and policy classes";

constexpr auto kKnown = std::to_array<Known>({
    {"DYN_AIC_*", kLearned},
    {"DYN_AUDIT_*", kAudit},
    {"DYN_BENCHMARK_*", kMeasured},
    {"DYN_CUSTOM_ENCODER_CLASS", kEngines},
    {"DYN_DECODE_MAX_*", kMeasured},
    {"DYN_DUMP_CONFIG_TO", "use --dump-config-to, or stator config"},
    {"DYN_DYNAMO_REQUEST_QUEUE_LIMIT", kQueues},
    {"DYN_ENABLE_EXPERIMENTAL_PARSERS_V2", "there is one parser for whole answers and streams"},
    {"DYN_ENABLE_POLL_HISTOGRAM", kThreads},
    {"DYN_ENABLE_RL", kEngines},
    {"DYN_ENABLE_STREAMING_REASONING_DISPATCH", kPieces},
    {"DYN_ENABLE_STREAMING_TOOL_DISPATCH", kPieces},
    {"DYN_ENGINE_CONV_AFFINITY*", kAgents},
    {"DYN_ENGINE_REQUEST_LIMIT", kQueues},
    {"DYN_FPM_*", "use --forward-passes"},
    {"DYN_FORWARDPASS_METRIC_PORT", "engines' passes are metrics of the worker's system port"},
    {"DYN_FRONTEND_ROUTE_EXTENSIONS", "routes are those of the binary"},
    {"DYN_GLOBAL_ROUTER_*", kPools},
    {"DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS", kDrain},
    {"DYN_GRPC_INITIAL_*", "gRPC windows grow by themselves"},
    {"DYN_HEALTH_CHECK_*", kHealth},
    {"DYN_HISTOGRAM_*", "use --frontend-histograms, or DYN_METRICS_<NAME>_MIN, _MAX and _COUNT"},
    {"DYN_HTTP_CONCURRENCY", kFetches},
    {"DYN_HTTP_CONNECT_TIMEOUT", kFetches},
    {"DYN_HTTP_KEEPALIVE_TIMEOUT", kFetches},
    {"DYN_HTTP_MAX_*", kFetches},
    {"DYN_HTTP_POOL_TIMEOUT", kFetches},
    {"DYN_HTTP_TIMEOUT", kFetches},
    {"DYN_HTTP_PRE_COMMIT_ERROR_PEEK_MS", "the status is always sent with the first token"},
    {"DYN_HTTP_SVC_CONFIG_METRICS_POLL_INTERVAL_SECS",
     "what is known of models changes with their workers' records"},
    {"DYN_HTTP_SVC_*", kPaths},
    {"DYN_IGNORE_OPENAI_FE_UNSUPPORTED_FIELDS",
     "unknown fields are ignored and named in a header; frontend.strict_fields refuses them"},
    {"DYN_KUBE_DISCOVERY_MODE", kDiscovery},
    {"DYN_KVBM_*", kTiers},
    {"DYN_KV_TRANSFER_ENFORCEMENT", "placement follows router.* settings"},
    {"DYN_LOGGING_*", kLogs},
    {"DYN_LOG_USE_LOCAL_TZ", "log lines have UTC times"},
    {"DYN_LORA_*", kLora},
    {"DYN_MODEL_PATH", "name the model as the argument of stator serve or worker"},
    {"DYN_MULTIMODAL_LOADER_CACHE_GB", kMedia},
    {"DYN_NATS_*", "of NATS only KV events go, if at all; see events.*"},
    {"DYN_OMNI_*", kMadeMedia},
    {"DYN_PARENT_DGD_K8S_NAME*", "set by Dynamo's operator; not needed"},
    {"DYN_PREFILL_DRAIN_TIMEOUT_S", kDrain},
    {"DYN_PREFILL_MAX_*", kMeasured},
    {"DYN_PREFIX_MAX_*", kMeasured},
    {"DYN_REQUEST_PLANE", kPlanes},
    {"DYN_REQUEST_PLANE_CODEC", kPlanes},
    {"DYN_EVENT_PLANE*", kPlanes},
    {"DYN_REQUEST_TRACE*", kTraces},
    {"DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS", "load is given back when a request ends"},
    {"DYN_ROUTER_ACTIVE_SEQUENCE_DIRECT_ZMQ", kPlanes},
    {"DYN_ROUTER_BLOCK_SIZE", "stator router has --block-size"},
    {"DYN_ROUTER_ENDPOINT", "stator router finds workers by discovery"},
    {"DYN_ROUTER_OVERLAP_REFRESH_AFTER_SECS", "the index is read when a request is routed"},
    {"DYN_ROUTER_POSITIONAL_SEARCH_MODE", "there is one index, and it is exact"},
    {"DYN_ROUTER_WORKER_SELECTION_POLICY", "use --router"},
    {"DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS", kDrain},
    {"DYN_RUNTIME_INHIBITED_DURATION_SECS", "how long a failing worker is left out is learned"},
    {"DYN_RUNTIME_MAX_BLOCKING_THREADS", "use frontend.compute_threads"},
    {"DYN_SDK_DISABLE_ANSI_LOGGING", kLogs},
    {"DYN_SGLANG_*", kEngines},
    {"DYN_SGL_*", kEngines},
    {"DYN_SQUEEZE_*", kAgents},
    {"DYN_SYSTEM_HEALTH_PATH", "the system port has /health, /live and /metrics"},
    {"DYN_SYSTEM_LIVE_PATH", "the system port has /health, /live and /metrics"},
    {"DYN_SYSTEM_STARTING_HEALTH_STATUS", kHealth},
    {"DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS", kHealth},
    {"DYN_TCP_RESPONSE_STREAM_*", kPlanes},
    {"DYN_TCP_TLS_*", "use rpc.* settings"},
    {"DYN_THUNDERAGENT_*", kAgents},
    {"DYN_TOKENIZER_CACHE_EXTEND", "later turns always extend what an earlier one left"},
    {"DYN_TOPOLOGY_*", "a worker's labels say where it is"},
    {"DYN_TRTLLM_*", kEngines},
    {"DYN_VLLM_*", kEngines},
    {"DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT", kDrain},
    {"DYN_ZMQ_*", kEvents},
});

constexpr std::string_view kWeight = "router.prefill_load_scale (STATOR_ROUTER_PREFILL_LOAD_SCALE)";

// Read beside the variable of a setting: older names, and parts of its value.
constexpr auto kThrough = std::to_array<Known>({
    {"DYN_FILE_KV", "discovery.backend file (STATOR_DISCOVERY_BACKEND)"},
    {"DYN_HEALTH_CHECK_ENABLED", "frontend.canary_interval (STATOR_FRONTEND_CANARY_INTERVAL)"},
    {"DYN_KVBM_OBJECT_ACCESS_KEY", "kv.object_access_key (STATOR_KV_OBJECT_ACCESS_KEY)"},
    {"DYN_KVBM_OBJECT_BUCKET", "kv.object (STATOR_KV_OBJECT)"},
    {"DYN_KVBM_OBJECT_ENABLED", "kv.object (STATOR_KV_OBJECT)"},
    {"DYN_KVBM_OBJECT_ENDPOINT", "kv.object_endpoint (STATOR_KV_OBJECT_ENDPOINT)"},
    {"DYN_KVBM_OBJECT_PREFIX", "kv.object (STATOR_KV_OBJECT)"},
    {"DYN_KVBM_OBJECT_REGION", "kv.object_region (STATOR_KV_OBJECT_REGION)"},
    {"DYN_KVBM_OBJECT_SECRET_KEY", "kv.object_secret_key (STATOR_KV_OBJECT_SECRET_KEY)"},
    {"DYN_KV_OVERLAP_SCORE_WEIGHT", kWeight},
    {"DYN_LOGGING_JSONL", "log.format (STATOR_LOG_FORMAT)"},
    {"DYN_REQUEST_TRACE", "request_log.request_trace (STATOR_REQUEST_LOG_REQUEST_TRACE)"},
    {"DYN_REQUEST_TRACE_RECORDS",
     "request_log.request_trace (of request_end; payloads: request_log.audit_log)"},
    {"DYN_REQUEST_TRACE_SINKS", "request_log.request_trace, a file or /dev/stderr"},
    {"DYN_REQUEST_TRACE_OUTPUT_PATH", "request_log.request_trace"},
    {"DYN_OVERLAP_SCORE_WEIGHT", kWeight},
    {"DYN_ROUTER_CONDITIONAL_DISAGG", "router.conditional_disagg_policy isl_bounding"},
    {"DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG", "router.conditional_disagg_* settings"},
    {"DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY",
     "router.overlap_credit_decay (STATOR_ROUTER_OVERLAP_CREDIT_DECAY)"},
    {"DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT", kWeight},
    {"DYN_ROUTER_LOAD_AWARE", "router.mode kv without overlap and KV events"},
    {"DYN_STORE_KV", "discovery.backend (STATOR_DISCOVERY_BACKEND)"},
    {"DYN_METRICS_*", "frontend.histograms (STATOR_FRONTEND_HISTOGRAMS)"},
    {"DYN_SYSTEM_ENABLED", "system.port (STATOR_SYSTEM_PORT)"},
    {"DYN_USE_KV_EVENTS", "router.use_kv_events (STATOR_ROUTER_USE_KV_EVENTS)"},
});

/// DYN_ROUTER_EVENT_THREADS → --router-event-threads
std::string flag_of(std::string_view variable, std::string_view prefix) {
  std::string flag(prefix);
  for (const char c : variable.substr(std::string_view("DYN_").size())) {
    flag += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return flag;
}

bool matches(std::string_view pattern, std::string_view name) {
  return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1))
                                : name == pattern;
}

constexpr std::string_view kPrefix = "DYN_";

DynamoFinding assess(const ConfigSchema& schema, const std::string& name) {
  const auto field = std::ranges::find(schema.fields(), name, &ConfigField::env_peer);
  if (field != schema.fields().end()) {
    return {name, DynamoFinding::Kind::kMapped, fmt::format("{} ({})", field->key, field->env)};
  }
  const auto through = std::ranges::find_if(
      kThrough, [&name](const Known& known) { return matches(known.name, name); });
  if (through != kThrough.end()) {
    return {name, DynamoFinding::Kind::kMapped, std::string(through->advice)};
  }
  for (const Known& known : kKnown) {
    if (matches(known.name, name)) {
      return {name, DynamoFinding::Kind::kIgnored, std::string(known.advice)};
    }
  }
  for (const std::string_view prefix : {"--", "--dyn-"}) {
    if (const auto advice = unused_flag_advice(flag_of(name, prefix))) {
      return {name, DynamoFinding::Kind::kIgnored, std::string(*advice)};
    }
  }
  return {name, DynamoFinding::Kind::kUnknown, "not a variable that we know of Dynamo"};
}

}  // namespace

std::vector<DynamoFinding> assess_dynamo(const ConfigSchema& schema,
                                         std::span<const std::string> names) {
  std::vector<DynamoFinding> findings;
  for (const std::string& name : names) {
    if (name.starts_with(kPrefix)) {
      findings.push_back(assess(schema, name));
    }
  }
  return findings;
}

std::vector<std::string> dynamo_variables() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (text.starts_with(kPrefix)) {
      names.emplace_back(text.substr(0, text.find('=')));
    }
  }
  std::ranges::sort(names);
  return names;
}

void warn_of_dynamo(const ConfigSchema& schema, std::span<const DynamoFinding> flags) {
  std::vector<DynamoFinding> all = assess_dynamo(schema, dynamo_variables());
  all.insert(all.end(), flags.begin(), flags.end());
  std::string without_effect;
  for (const DynamoFinding& finding : all) {
    if (finding.kind != DynamoFinding::Kind::kMapped) {
      without_effect +=
          fmt::format("{}{}: {}", without_effect.empty() ? "" : "; ", finding.name, finding.advice);
    }
  }
  if (!without_effect.empty()) {
    log::warn("config", "flags and variables of Dynamo that have no effect here",
              {{"what", without_effect}});
  }
}

}  // namespace stator::app
