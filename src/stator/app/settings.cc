// SPDX-License-Identifier: Apache-2.0
#include "stator/app/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "stator/app/dynamo_flags.h"
#include "stator/app/terminal.h"
#include "stator/engine/sim/sim_core.h"
#include "stator/frontend/request_defaults.h"
#include "stator/io/read_file.h"
#include "stator/kube/yaml.h"
#include "stator/net/loopback.h"
#include "stator/router/queue/policy_classes.h"
#include "stator/router/router_service.h"

namespace stator::app {
namespace {

void describe_server(ConfigSchema& schema, EngineServerSettings& server) {
  schema.text("engine.url", server.url,
              "http://HOST:PORT of the engine server, or a list of them: one worker each",
              {.flag = "url"});
  schema.secret("engine.api_key", server.api_key, "bearer token for the engine server");
  schema.text("engine.upstream_model", server.upstream_model,
              "name the engine server knows the model by, default: the first it lists",
              {.flag = "upstream-model"});
  schema.text(
      "engine.events", server.events,
      "where the engine publishes KV events, tcp://HOST:PORT (a list as engine.url), auto = "
      "as the engine says, none",
      {.flag = "engine-events"});
  schema.text("engine.events_replay", server.events_replay,
              "where it answers replays of lost events", {.flag = "engine-events-replay"});
  schema.text("engine.events_topic", server.events_topic,
              "topic of its events, used with an explicit engine.events");
  schema.choice("engine.vllm_route", server.vllm_route, {"completions", "generate"},
                "vLLM's route: /v1/completions, or /inference/v1/generate (--enable-scale-out)");
  schema.choice("engine.handoff", server.handoff, {"nixl", "shared"},
                "how a vLLM server hands prompts over: NixlConnector, or storage that all see "
                "(ExampleConnector)",
                {.flag = "handoff"});
  schema.duration("engine.handoff_lease", server.handoff_lease,
                  "how long a prefill server keeps a prompt: vLLM's kv_lease_duration");
  schema.duration("engine.connect_timeout", server.connect_timeout,
                  "to open a connection to the engine server");
  schema.duration("engine.stall_timeout", server.stall_timeout,
                  "an engine server that sends nothing for so long has lost the request");
  schema.duration("engine.ready_timeout", server.ready_timeout,
                  "to wait at start for an engine server to answer");
  schema.duration("engine.poll_interval", server.poll_interval,
                  "between two looks at the engine server's health and metrics");
  schema.duration("engine.silence_timeout", server.silence_timeout,
                  "an engine server that sends nothing at all for so long, its health included, "
                  "stands still: its requests go on elsewhere; 0 = never");
  schema.duration("engine.stop_timeout", server.stop_timeout,
                  "a launched engine server has to end after SIGTERM before it is killed");
}

void describe_simulated(ConfigSchema& schema, WorkerSettings& worker) {
  engine::describe(schema, worker.sim);
  engine::describe(schema, worker.sim_faults);
  schema.integer("sim.vector_width", worker.sim_vector_width, 1, 65536,
                 "numbers per embedding of a simulated model", {.flag = "sim-vector-width"});
  schema.duration("sim.startup_time", worker.sim_startup_time,
                  "a simulated worker is listed as starting for so long and gets no requests",
                  {.flag = "sim-startup-time"});
  schema.text("sim.reply", worker.sim_reply,
              "file with the text the simulated engine says, or *.jsonl of {\"when\",\"reply\"}",
              {.flag = "sim-reply"});
}

void describe_system(ConfigSchema& schema, SystemSettings& settings) {
  schema.integer("system.port", settings.port, -1, 65535,
                 "port of a worker's HTTP service for operators (health, metrics, LoRA adapters, "
                 "sleep), 0 = any free one, -1 = none",
                 {.flag = "system-port", .env_peer = "DYN_SYSTEM_PORT"});
  schema.text("system.host", settings.host,
              "its address; on others than loopback nothing can be changed without system.token",
              {.flag = "system-host", .env_peer = "DYN_SYSTEM_HOST"});
  schema.secret("system.token", settings.token,
                "bearer token it wants from whoever changes something");
  schema.text("system.allowed_hosts", settings.allowed_hosts,
              "names it may be asked by on loopback, beside localhost and addresses: a list with "
              "commas");
}

void describe_admin(ConfigSchema& schema, AdminSettings& settings) {
  schema.integer("admin.port", settings.port, -1, 65535,
                 "port of the operators' listener (metrics, receipts, thresholds, adapters, drain, "
                 "page): with it these are not on the public port; 0 = any free one, -1 = none",
                 {.flag = "admin-port"});
  schema.text("admin.host", settings.host,
              "its address; others than loopback need access.api_keys or access.jwt_jwks",
              {.flag = "admin-host"});
  schema.text("admin.allowed_hosts", settings.allowed_hosts,
              "names it may be asked by on loopback, beside localhost and addresses: a list with "
              "commas");
}

/// What clients, discovery and metrics call a worker.
void describe_names(ConfigSchema& schema, WorkerSettings& worker) {
  schema.text("worker.model_name", worker.model_name,
              "name clients use, default: the last part of MODEL",
              {.flag = "model-name", .env_peer = "DYN_MODEL_NAME"});
  schema.text("worker.aliases", worker.aliases,
              "further names that clients may use for the model: a list with commas",
              {.flag = "model-aliases"});
  schema.text("worker.taints", worker.taints,
              "what the worker is, for requests that demand or prefer it "
              "(nvext.routing_constraints): a list with commas",
              {.flag = "taints"});
  schema.text("worker.component", worker.component,
              "component it registers as and its metrics name; empty = prefill for --role prefill, "
              "else backend",
              {.flag = "component", .env_peer = "DYN_COMPONENT"});
  schema.text("worker.endpoint", worker.endpoint,
              "endpoint its metrics name, or dyn://NAMESPACE.COMPONENT.ENDPOINT for all three",
              {.flag = "endpoint", .env_peer = "DYN_ENDPOINT"});
}

void describe_handoffs(ConfigSchema& schema, HandoffSettings& handoff) {
  schema.integer("worker.prefill_workers", handoff.prefill_workers, 0, 1024,
                 "workers of this process that compute prompts only (engines cpu and sim)",
                 {.flag = "prefill-workers"});
  schema.integer("worker.decode_workers", handoff.decode_workers, 0, 1024,
                 "workers that go on from those prompts, or do everything; the two take the place "
                 "of worker.count and worker.role",
                 {.flag = "decode-workers"});
  schema.bytes("worker.handoff_bytes", handoff.bytes,
               "memory of a prefill worker for prompts that were not fetched yet (engines cpu and "
               "sim)",
               {.flag = "handoff-bytes"});
  schema.duration("worker.handoff_timeout", handoff.timeout,
                  "a decode worker waits so long for a prompt, then computes it itself (engines "
                  "cpu and sim)",
                  {.flag = "handoff-timeout"});
}

void describe_model(ConfigSchema& schema, WorkerSettings& worker) {
  schema.text("worker.media", worker.media,
              "what the model takes beside text: a list of image, audio and video, none, or auto: "
              "as its server says, else what its config.json has parts for; engine servers only",
              {.flag = "media"});
  schema.choice("worker.task", worker.task, {"auto", "generate", "embed", "classify", "score"},
                "what the model is asked for: auto goes by its files (cpu) or its server, a "
                "simulated one does everything; embed, classify and score generate nothing",
                {.flag = "task"});
}

// How the model's texts are written and read.
void describe_texts(ConfigSchema& schema, WorkerSettings& worker) {
  schema.text("worker.tool_call_parser", worker.tool_call_parser,
              "format of the model's tool calls: a family (stator parse --list), auto or none",
              {.flag = "tool-call-parser",
               .env_peer = "DYN_TOOL_CALL_PARSER",
               .flag_peer = "dyn-tool-call-parser"});
  schema.text("worker.chat_template", worker.chat_template,
              "file with a Jinja template in place of the model's own",
              {.flag = "chat-template",
               .env_peer = "DYN_CUSTOM_JINJA_TEMPLATE",
               .flag_peer = "custom-jinja-template"});
  schema.choice("worker.default_thinking_mode", worker.default_thinking_mode,
                {"auto", "enabled", "disabled"},
                "whether the model reasons when a chat does not say; auto = as its template has it",
                {.flag = "default-thinking-mode",
                 .env_peer = "DYN_DEFAULT_THINKING_MODE",
                 .flag_peer = "dyn-default-thinking-mode"});
  schema.text("worker.reasoning_parser", worker.reasoning_parser,
              "format of the model's reasoning: a family, auto or none",
              {.flag = "reasoning-parser",
               .env_peer = "DYN_REASONING_PARSER",
               .flag_peer = "dyn-reasoning-parser"});
}

void describe_worker(ConfigSchema& schema, WorkerSettings& worker) {
  engine::EngineConfig& engine = worker.engine_config;
  engine.max_num_batched_tokens = 0;
  schema.choice("worker.engine", worker.engine,
                {"cpu", "sim", "vllm", "sglang", "trtllm", "llamacpp", "openai"},
                "what computes tokens: the built-in CPU engine, a simulated one, or a server of "
                "that kind at engine.url",
                {.flag = "engine"});
  schema.text("worker.role", worker.role,
              "auto, aggregated, prefill (computes prompts only) or decode (goes on from them, or "
              "does everything); a list as engine.url",
              {.flag = "role"});
  schema.integer("worker.count", worker.count, 0, 1024,
                 "workers in this process (engines sim and cpu), 0 = 2 (serve) or 1 (worker)",
                 {.flag = "workers"});
  describe_handoffs(schema, worker.handoff);
  describe_names(schema, worker);
  describe_model(schema, worker);
  describe_texts(schema, worker);
  schema.text("worker.listen_host", worker.listen_host, "address of the worker's gRPC service");
  schema.integer("worker.port", worker.port, 0, 65535,
                 "port of the worker's gRPC service, 0 = any free one");
  schema.duration("worker.drain_timeout", worker.drain_timeout,
                  "how long requests may finish after SIGTERM, then other workers take them over",
                  {.flag = "drain-timeout"});
  schema.integer("engine.block_size", engine.block_size, 1, 1024, "tokens per KV block",
                 {.flag = "block-size", .env_peer = "DYN_KV_CACHE_BLOCK_SIZE"});
  schema.bytes("engine.kv_cache_bytes", worker.kv_cache_bytes,
               "KV cache per worker (cpu engine), touched only as used",
               {.flag = "kv-cache-bytes"});
  schema.integer("engine.kv_blocks", engine.total_blocks, 2, 1U << 28,
                 "KV blocks per worker (sim engine)", {.flag = "kv-blocks"});
  schema.integer(
      "engine.host_blocks", engine.host_blocks, 0, 1U << 30,
      "KV blocks per worker in host memory, for those evicted from the device; goes before "
      "kv.host_bytes",
      {.flag = "host-blocks", .env_peer = "DYN_KVBM_CPU_CACHE_OVERRIDE_NUM_BLOCKS"});
  schema.integer("engine.dp_size", worker.sim_dp_size, 1, engine::kSimRanksMax,
                 "data-parallel attention ranks per worker, each with a scheduler and KV blocks of "
                 "its own; their passes last as long as the slowest one's (sim engine)",
                 {.flag = "dp-size"});
  schema.integer("engine.max_num_seqs", engine.max_num_seqs, 1, 1 << 20,
                 "sequences running at once", {.flag = "max-num-seqs"});
  schema.integer("engine.max_num_batched_tokens", engine.max_num_batched_tokens, 0, 1 << 24,
                 "tokens computed in one step, 0 = 512 (cpu) or 8192 (sim)",
                 {.flag = "max-num-batched-tokens"});
  schema.integer("engine.max_model_len", engine.max_model_len, 0, 1 << 24,
                 "prompt and output tokens, 0 = what the model allows", {.flag = "max-model-len"});
  schema.integer("engine.waiting_max", engine.waiting_max, 1, 1 << 24,
                 "requests waiting in one engine (in or at an engine server), beyond: refused");
  schema.boolean("engine.prefix_caching", engine.enable_prefix_caching,
                 "reuse KV blocks of equal prefixes");
  schema.integer("engine.threads", worker.threads, 1, 1024, "threads per worker (cpu engine)",
                 {.flag = "threads"});
  describe_server(schema, worker.server);
  describe_simulated(schema, worker);
}

void describe_etcd(ConfigSchema& schema, discovery::EtcdOptions& etcd) {
  schema.text("discovery.etcd_username", etcd.username, "user of the etcd store, empty = no login",
              {.env_peer = "ETCD_AUTH_USERNAME"});
  schema.secret("discovery.etcd_password", etcd.password,
                "its password; better given by the environment",
                {.env_peer = "ETCD_AUTH_PASSWORD"});
  schema.text("discovery.etcd_ca", etcd.ca_path, "PEM file that etcds:// servers are checked with",
              {.env_peer = "ETCD_AUTH_CA"});
  schema.text("discovery.etcd_cert", etcd.certificate_path, "PEM certificate to show to them",
              {.env_peer = "ETCD_AUTH_CLIENT_CERT"});
  schema.text("discovery.etcd_key", etcd.key_path, "its PEM private key",
              {.env_peer = "ETCD_AUTH_CLIENT_KEY"});
  schema.duration("discovery.startup_timeout", etcd.startup_timeout,
                  "how long a worker waits at its start for the etcd store");
}

void describe_port(ConfigSchema& schema, PortSettings& port) {
  schema.boolean("frontend.share_port", port.share,
                 "join a frontend of this user that serves the port: both accept, and when one "
                 "ends no connection is refused",
                 {.flag = "share-port"});
  schema.duration("frontend.join_wait", port.join_wait,
                  "with a shared port: how long to wait for all workers before accepting");
  schema.duration("frontend.lame_duck", port.lame_duck,
                  "after SIGTERM all is served on for this long, with /health at 503, so that load "
                  "balancers look elsewhere; SIGINT skips it",
                  {.flag = "lame-duck"});
}

void describe_rpc(ConfigSchema& schema, RpcSettings& rpc) {
  schema.text("rpc.tls_cert_path", rpc.certificate,
              "PEM certificate of this process between frontends, workers and routers; with key "
              "and CA on both sides: mutual TLS",
              {.env_peer = "DYN_TCP_TLS_CERT_PATH"});
  schema.text("rpc.tls_key_path", rpc.key, "its PEM private key",
              {.env_peer = "DYN_TCP_TLS_KEY_PATH"});
  schema.text("rpc.tls_ca_cert_path", rpc.ca, "PEM file that the other side is checked with",
              {.env_peer = "DYN_TCP_TLS_CA_CERT_PATH"});
  schema.text(
      "rpc.tls_allowed_callers", rpc.allowed_callers,
      "list of names (DNS name, IP address or URI in the certificate) that may call this "
      "worker, ask this frontend what it booked, or have it keep copies of streams; empty = "
      "whoever the CA signed");
  schema.text("rpc.tls_server_name", rpc.server_name,
              "name that workers' certificates have, empty = their address",
              {.env_peer = "DYN_TCP_TLS_SERVER_NAME"});
  schema.boolean("rpc.insecure", rpc.insecure,
                 "let worker.listen_host, frontend.journal_host and router.replica_sync_host be "
                 "addresses that other machines reach without TLS: whoever reaches them may use "
                 "them, so the network must keep strangers out");
}

}  // namespace

Result<std::optional<net::TlsFiles>> RpcSettings::tls() const {
  if (certificate.empty() && key.empty() && ca.empty() && allowed_callers.empty() &&
      server_name.empty()) {
    return std::optional<net::TlsFiles>();
  }
  if (certificate.empty() || key.empty() || ca.empty()) {
    return Error(Code::kInvalidArgument,
                 "TLS between frontends and workers is mutual: give rpc.tls_cert_path, "
                 "rpc.tls_key_path and rpc.tls_ca_cert_path");
  }
  net::TlsFiles files{.certificate = certificate,
                      .key = key,
                      .ca = ca,
                      .allowed_callers = {},
                      .server_name = server_name};
  std::string_view rest = allowed_callers;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    if (comma > 0) {
      files.allowed_callers.emplace_back(rest.substr(0, comma));
    }
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return std::optional(std::move(files));
}

Status RpcSettings::check_reach(std::string_view setting, std::string_view host) const {
  if (insecure || net::is_loopback_host(host) || !certificate.empty()) {
    return {};
  }
  return Error(
      Code::kInvalidArgument,
      fmt::format("{} '{}' is reached by other machines, and without TLS anybody there may use the "
                  "service: give rpc.tls_cert_path, rpc.tls_key_path and rpc.tls_ca_cert_path, or "
                  "--rpc-insecure (rpc.insecure) if the network keeps strangers out",
                  setting, host));
}

Status check_kv_budgets(const Settings& settings, uint32_t usual_workers) {
  const WorkerSettings& worker = settings.worker;
  const uint32_t count = worker.handoff.workers() > 0 ? worker.handoff.workers()
                         : worker.count == 0          ? usual_workers
                                                      : worker.count;
  return check_budgets(settings.kv, count, worker.engine == "cpu" ? worker.kv_cache_bytes : 0);
}

std::string NamespaceSettings::of_workers() const {
  return (name.empty() ? "dynamo" : name) + (worker_suffix.empty() ? "" : "-" + worker_suffix);
}

std::string NamespaceSettings::of_frontend() const {
  return prefix.empty() ? name : prefix + "*";
}

std::string NamespaceSettings::shown() const {
  return !name.empty() ? name : prefix.empty() ? "dynamo" : prefix;
}

/// The classes of requests that router.policy_config names.
Status load_policies(router::RouterConfig& config) {
  if (config.policy_config.empty()) {
    return {};
  }
  STATOR_TRY(const std::string text, io::read_file(config.policy_config), "router.policy_config");
  STATOR_TRY(const auto documents, kube::parse_yaml(text, config.policy_config));
  if (documents.size() != 1) {
    return Error(Code::kInvalidArgument,
                 fmt::format("router.policy_config: {} must have one YAML document, not {}",
                             config.policy_config, documents.size()));
  }
  STATOR_TRY(config.policies, router::parse_policy_config(documents.front()), config.policy_config);
  return {};
}

Status settle(Settings& settings) {
  WorkerSettings& worker = settings.worker;
  settings.discovery = discovery_place(settings.discovery);
  constexpr std::string_view kScheme = "dyn://";
  std::string_view path = worker.endpoint;
  if (path.starts_with(kScheme)) {
    path.remove_prefix(kScheme.size());
    const size_t first = path.find('.');
    const size_t second = first == std::string_view::npos ? first : path.find('.', first + 1);
    if (second == std::string_view::npos) {
      return Error(Code::kInvalidArgument,
                   fmt::format("worker.endpoint (flag --endpoint): '{}' is not "
                               "dyn://NAMESPACE.COMPONENT.ENDPOINT",
                               worker.endpoint));
    }
    settings.spaces.name = path.substr(0, first);
    worker.component = path.substr(first + 1, second - first - 1);
    worker.endpoint = std::string(path.substr(second + 1));
  }
  settings.frontend.worker_namespace = settings.spaces.of_frontend();
  if (const std::string& file = settings.frontend.request_template; !file.empty()) {
    STATOR_TRY(const std::string text, io::read_file(file), "frontend.request_template");
    STATOR_TRY(settings.frontend.request_defaults, frontend::RequestDefaults::parse(text), file);
  }
  STATOR_CHECK(settle_kv(settings.kv, read_env));
  return load_policies(settings.router);
}

void describe(ConfigSchema& schema, Settings& settings) {
  schema.choice("log.format", settings.log_format, {"human", "json"}, "how log lines look",
                {.env_peer = "DYN_LOGGING_CONSOLE_FORMAT"});
  schema.text("log.filter", settings.log_filter, "level[,target=level]*, e.g. info,router=debug",
              {.flag = "log", .env_peer = "DYN_LOG"});
  schema.text("discovery.backend", settings.discovery,
              "how processes find each other: memory, file:DIR shared on one host, "
              "etcd://host:port[,host:port][/root] (etcds:// for TLS), kubernetes:NAMESPACE, or no "
              "service at all: static:HOST:PORT[,…] or static:@FILE names the workers, which have "
              "--discovery static",
              {.flag = "discovery", .env_peer = "DYN_DISCOVERY_BACKEND"});
  schema.text("discovery.namespace", settings.spaces.name,
              "namespace that workers join (else: dynamo) and whose workers a frontend serves "
              "(else: all); label dynamo_namespace of metrics",
              {.flag = "namespace", .env_peer = "DYN_NAMESPACE"});
  schema.text("discovery.namespace_prefix", settings.spaces.prefix,
              "a frontend serves the workers of all namespaces that begin so",
              {.flag = "namespace-prefix", .env_peer = "DYN_NAMESPACE_PREFIX"});
  schema.text("discovery.namespace_suffix", settings.spaces.worker_suffix,
              "workers join NAMESPACE-SUFFIX: pools of one fleet",
              {.env_peer = "DYN_NAMESPACE_WORKER_SUFFIX"});
  schema.duration("discovery.lease_ttl", settings.lease_ttl,
                  "a record not renewed for this long is stale");
  describe_etcd(schema, settings.etcd);
  describe(schema, settings.events);
  describe_rpc(schema, settings.rpc);
  schema.boolean("announce", settings.announce,
                 "print one JSON line with the real addresses on stdout when ready");
  frontend::describe(schema, settings.frontend);
  describe_port(schema, settings.port);
  router::describe(schema, settings.router);
  describe_worker(schema, settings.worker);
  describe(schema, settings.worker.cpu);
  describe_kv(schema, settings.kv);
  describe_system(schema, settings.system);
  describe_admin(schema, settings.admin);
  access::describe(schema, settings.access);
  telemetry::describe(schema, settings.telemetry);
  weights::describe(schema, settings.hub);
}

}  // namespace stator::app
