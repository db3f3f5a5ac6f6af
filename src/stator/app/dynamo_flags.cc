// SPDX-License-Identifier: Apache-2.0
#include "stator/app/dynamo_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "stator/app/terminal.h"
#include "stator/app/trace_env.h"
#include "stator/json/value.h"

namespace stator::app {
namespace {

struct Renamed {
  std::string_view theirs;
  std::string_view ours;
};

// Same meaning, same values.
constexpr auto kRenamed = std::to_array<Renamed>({
    {"--assume-kv-reuse", "--router-assume-kv-reuse"},
    {"--data-parallel-size", "--dp-size"},
    {"--decode-speedup-ratio", "--sim-decode-speedup"},
    {"--disaggregation-mode", "--role"},
    {"--discovery-backend", "--discovery"},
    {"--enable-prefix-caching", "--engine-prefix-caching"},
    {"--enforce-disagg", "--router-enforce-disagg"},
    {"--engine-type", "--sim-rules"},
    {"--http-host", "--host"},
    {"--http-port", "--port"},
    {"--kv-bytes-per-token", "--sim-kv-bytes-per-token"},
    {"--kv-cache-block-size", "--block-size"},
    {"--kv-events", "--router-use-kv-events"},
    {"--kv-overlap-score-weight", "--router-prefill-load-scale"},
    {"--num-gpu-blocks-override", "--kv-blocks"},
    {"--num-workers", "--workers"},
    {"--reasoning-field-name", "--frontend-reasoning-field"},
    {"--router-decode-active-request-weight", "--router-active-request-weight"},
    {"--router-kv-events", "--router-use-kv-events"},
    {"--router-kv-overlap-score-credit", "--router-overlap-credit"},
    {"--router-kv-overlap-score-credit-decay", "--router-overlap-credit-decay"},
    {"--router-kv-overlap-score-weight", "--router-prefill-load-scale"},
    {"--router-overlap-score-credit", "--router-overlap-credit"},
    {"--router-overlap-score-credit-decay", "--router-overlap-credit-decay"},
    {"--router-overlap-score-weight", "--router-prefill-load-scale"},
    {"--router-predicted-ttl-secs", "--router-predicted-ttl"},
    {"--router-session-affinity-ttl-secs", "--router-session-affinity-ttl"},
    {"--router-ttl-secs", "--router-ttl"},
    {"--served-model-name", "--model-name"},
    {"--session-affinity-ttl", "--router-session-affinity-ttl"},
    {"--speedup-ratio", "--sim-speedup"},
    {"--startup-time", "--sim-startup-time"},
    {"--store-kv", "--discovery"},
    {"--tcp-tls-ca-cert-path", "--rpc-tls-ca-cert-path"},
    {"--tcp-tls-cert-path", "--rpc-tls-cert-path"},
    {"--tcp-tls-key-path", "--rpc-tls-key-path"},
    {"--tcp-tls-server-name", "--rpc-tls-server-name"},
    {"--use-kv-events", "--router-use-kv-events"},
});

struct Unused {
  std::string_view flag;
  bool is_switch;
  std::string_view advice;
};

constexpr std::string_view kAlways = "always so here";
constexpr std::string_view kMocker = "stator sim-server and the sim.* settings model engines";
constexpr std::string_view kAic = "router.prefill_load_model learned needs no estimator";
constexpr std::string_view kTag = "structured output is the engines'; see structured_output.md";
constexpr std::string_view kMedia = "media are not generated here";
constexpr std::string_view kOneIndex = "there is one index, exact and read without locks";

// Known, and without effect here.
constexpr auto kUnused = std::to_array<Unused>({
    {"--admission-control", false, "thresholds that are set apply (router.active_*_threshold)"},
    {"--aic-attention-dp-size", false, kAic},
    {"--aic-backend", false, kAic},
    {"--aic-backend-version", false, kAic},
    {"--aic-model-path", false, kAic},
    {"--aic-moe-ep-size", false, kAic},
    {"--aic-moe-tp-size", false, kAic},
    {"--aic-mtp-seed", false, kAic},
    {"--aic-nextn", false, kAic},
    {"--aic-nextn-accept-rates", false, kAic},
    {"--aic-system", false, kAic},
    {"--aic-tp-size", false, kAic},
    {"--bootstrap-ports", false, kMocker},
    {"--chat-processor", false, "texts are always prepared natively"},
    {"--connector", false, "the engine server's own flag decides"},
    {"--custom-backend-metrics-endpoint", false, "engines are scraped by their adapters"},
    {"--dyn-chat-processor", false, "texts are always prepared natively"},
    {"--dyn-debug-perf", true, "stator_frontend_* and dynamo_frontend_stage_* metrics show it"},
    {"--dyn-enable-structural-tag", true, kTag},
    {"--dyn-endpoint-types", false, "worker.task and the model's template decide"},
    {"--dyn-preprocess-workers", false, "use --frontend-compute-threads"},
    {"--dyn-structural-tag", false, kTag},
    {"--dyn-structural-tag-schema", false, kTag},
    {"--dyn-structural-tag-scope", false, kTag},
    {"--enable-anthropic-api", true, kAlways},
    {"--enable-chunked-prefill", true, kAlways},
    {"--enable-local-indexer", true, kAlways},
    {"--enable-session-prefix-index", true, "use --router-session-affinity-ttl"},
    {"--enable-streaming-reasoning-dispatch", true, "reasoning is streamed as it comes"},
    {"--enable-streaming-tool-dispatch", true, "tool calls are streamed as they come"},
    {"--endpoint-types", false, "worker.task and the model's template decide"},
    {"--engine-request-limit", false, "use --max-num-seqs and engine.waiting_max"},
    {"--event-plane", false, "KV events go over gRPC; use --events nats://HOST:PORT for a broker"},
    {"--extra-engine-args", false, "give its values as flags: --block-size, --max-num-seqs, …"},
    {"--fpm-trace", true, "use --forward-passes"},
    {"--grpc-metrics-port", false, "metrics are on the HTTP port, or on --admin-port"},
    {"--frontend-route-extension", false, "routes are those of the binary"},
    {"--health-check-payload", false, "frontend.canary_interval asks idle workers for a token"},
    {"--interactive", true, "use stator chat"},
    {"--kv-state-endpoint", false, "KV events come from the worker that serves"},
    {"--kv-transfer-bandwidth", false, kMocker},
    {"--media-output-fs-url", false, kMedia},
    {"--media-output-http-url", false, kMedia},
    {"--multimodal-embedding-cache-capacity-gb", false, kMedia},
    {"--multimodal-embedding-cache-publisher", true, kMedia},
    {"--nats-tls-ca-cert-path", false, "use tls:// in --events and events.* settings"},
    {"--nats-tls-client-cert-path", false, "use tls:// in --events and events.* settings"},
    {"--nats-tls-client-key-path", false, "use tls:// in --events and events.* settings"},
    {"--nats-tls-insecure", true, "use tls:// in --events and events.* settings"},
    {"--output-modalities", false, kMedia},
    {"--planner-profile-data", false, kMocker},
    {"--preemption-mode", false, kMocker},
    {"--reasoning", false, kMocker},
    {"--request-plane", false, "frontends and workers speak gRPC; there is nothing to choose"},
    {"--response-plane", false, "frontends and workers speak gRPC; there is nothing to choose"},
    {"--router-approximate-cache-policy", false, "use router.ttl_blocks_max"},
    {"--router-decode-policy", false, "use --router"},
    {"--router-event-threads", false, kOneIndex},
    {"--router-min-initial-workers", false, "/v1/models/{id}/ready says when there are workers"},
    {"--router-prefill-policy", false, "use --router"},
    {"--router-track-active-blocks", true, kAlways},
    {"--router-track-output-blocks", true, kAlways},
    {"--router-tracking-hash", false, "router.replica_sync sends no hashes of prompts"},
    {"--router-tracking-key-file", false, "router.replica_sync sends no hashes of prompts"},
    {"--router-tracking-key-id", false, "router.replica_sync sends no hashes of prompts"},
    {"--serve-indexer", true, "use stator router --indexer"},
    {"--shared-cache-multiplier", false, "shared caches are not asked yet"},
    {"--shared-cache-type", false, "shared caches are not asked yet"},
    {"--skip-initial-worker-wait", true, kAlways},
    {"--stagger-delay", false, kMocker},
    {"--tcp-tls-client-ca-cert-path", false, "TLS is mutual: rpc.tls_ca_cert_path serves both"},
    {"--tcp-tls-client-cert-path", false, "TLS is mutual: rpc.tls_cert_path serves both"},
    {"--tcp-tls-client-key-path", false, "TLS is mutual: rpc.tls_key_path serves both"},
    {"--tcp-tls-handshake-timeout", false, "handshakes have the connection's limit"},
    {"--tcp-tls-insecure", true, "certificates are always checked; leave TLS out instead"},
    {"--tokenizer", false, "there is one tokenizer, and it is exact"},
    {"--tokenizer-fallback", true, "there is one tokenizer, and it is exact"},
    {"--track-active-blocks", true, kAlways},
    {"--track-output-blocks", true, kAlways},
    {"--trust-remote-code", true, "no code of models is ever run"},
    {"--use-remote-indexer", true, "use --router-url"},
    {"--watermark", false, kMocker},
    {"--zmq-kv-events-ports", false, kMocker},
    {"-i", true, "use stator chat"},
});

// "None" means that there is no threshold.
constexpr auto kNullable = std::to_array<std::string_view>({
    "--active-decode-blocks-threshold",
    "--active-prefill-tokens-threshold",
    "--active-prefill-tokens-threshold-frac",
    "--router-queue-threshold",
});

/// One flag as it was typed.
struct Typed {
  std::string flag;
  std::optional<std::string> value;  ///< behind '=', or true and false of a switch
  bool negated = false;              ///< --no-…
};

class Translator {
 public:
  Translator(std::span<const char* const> words, const OwnFlags& own) : rest_(words), own_(own) {}

  Result<TranslatedFlags> run() {
    while (!rest_.empty()) {
      STATOR_CHECK(take(rest_.front()));
    }
    if (load_aware_) {
      put_load_aware();
    }
    return std::move(out_);
  }

 private:
  Status take(std::string_view word) {
    rest_ = rest_.subspan(1);
    if (!word.starts_with("--") && word != "-i") {
      out_.words.emplace_back(word);
      return {};
    }
    Typed typed = split(word);
    if (own_.has(typed.flag)) {
      pass_own(typed, word);
      return {};
    }
    STATOR_TRY(const bool special, take_special(typed));
    if (special || take_renamed(typed) || take_unused(typed)) {
      return {};
    }
    out_.words.emplace_back(word);
    return {};
  }

  Typed split(std::string_view word) const {
    Typed typed;
    const size_t equals = word.find('=');
    typed.flag = word.substr(0, equals);
    if (equals != std::string_view::npos) {
      typed.value = word.substr(equals + 1);
    }
    constexpr std::string_view kNo = "--no-";
    if (typed.flag.starts_with(kNo) && !own_.has(typed.flag)) {
      typed.flag = "--" + typed.flag.substr(kNo.size());
      typed.value = "false";
      typed.negated = true;
    }
    return typed;
  }

  /// The value behind the flag, or "" when none is there.
  std::string value_of(const Typed& typed) {
    if (typed.value) {
      return *typed.value;
    }
    if (rest_.empty() || std::string_view(rest_.front()).starts_with("--")) {
      return "";
    }
    std::string value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }

  void put(std::string_view flag, std::string_view value) {
    out_.words.push_back(fmt::format("{}={}", flag, value));
  }

  /// The preset wins over what else was said of the same settings.
  void put_load_aware() {
    static constexpr auto kPreset = std::to_array<Renamed>({
        {"--router-mode", "kv"},
        {"--router-overlap-credit", "0"},
        {"--router-use-kv-events", "false"},
        {"--router-assume-kv-reuse", "false"},
        {"--router-track-prefill-tokens", "true"},
    });
    std::vector<std::string> kept;
    for (size_t i = 0; i < out_.words.size(); ++i) {
      const std::string flag = out_.words[i].substr(0, out_.words[i].find('='));
      const bool replaced =
          flag == "--router" || std::ranges::find(kPreset, flag, &Renamed::theirs) != kPreset.end();
      if (!replaced) {
        kept.push_back(std::move(out_.words[i]));
      } else if (flag.size() == out_.words[i].size() && i + 1 < out_.words.size() &&
                 !out_.words[i + 1].starts_with("--")) {
        ++i;  // its value
      }
    }
    out_.words = std::move(kept);
    for (const auto& [flag, value] : kPreset) {
      put(flag, value);
    }
  }

  /// A flag that the command has under the same name.
  void pass_own(const Typed& typed, std::string_view word) {
    const bool nullable = std::ranges::find(kNullable, typed.flag) != kNullable.end();
    if (nullable) {
      const std::string value = value_of(typed);
      put(typed.flag, value == "None" || value == "none" ? "-1" : value);
    } else if (typed.negated) {
      put(typed.flag, "false");
    } else {
      out_.words.emplace_back(word);
    }
  }

  void ignore(std::string_view flag, std::string_view advice) {
    out_.ignored.push_back({std::string(flag), DynamoFinding::Kind::kIgnored, std::string(advice)});
  }

  bool take_renamed(const Typed& typed) {
    const auto rule = std::ranges::find(kRenamed, typed.flag, &Renamed::theirs);
    if (rule == kRenamed.end()) {
      return false;
    }
    const bool is_switch = own_.is_switch(rule->ours) || rule->ours == "--router-use-kv-events" ||
                           rule->ours == "--router-assume-kv-reuse" ||
                           rule->ours == "--router-enforce-disagg" ||
                           rule->ours == "--engine-prefix-caching";
    std::string value = is_switch ? typed.value.value_or("true") : value_of(typed);
    if (!own_.has(rule->ours)) {
      ignore(typed.flag, fmt::format("belongs to another process here: its flag {}", rule->ours));
      return true;
    }
    if (rule->ours == "--role" && value == "agg") {
      value = "aggregated";
    }
    put(rule->ours, value);
    if (typed.flag.ends_with("overlap-score-weight") &&
        value.find_first_not_of("0.") == std::string::npos) {
      put("--router-overlap-credit", "0");
    }
    return true;
  }

  bool take_unused(const Typed& typed) {
    const auto rule = std::ranges::find(kUnused, typed.flag, &Unused::flag);
    if (rule == kUnused.end()) {
      return false;
    }
    if (!rule->is_switch && !typed.value) {
      do {  // some take several
        value_of(typed);
      } while (!rest_.empty() && !std::string_view(rest_.front()).starts_with("-") &&
               (typed.flag == "--connector" || typed.flag == "--output-modalities"));
    }
    ignore(typed.flag, rule->advice);
    return true;
  }

  /// Flags that become something else than one of ours with the same value.
  Result<bool> take_special(const Typed& typed) {
    if (typed.flag == "--model-path" || typed.flag == "--model") {
      std::string value = value_of(typed);
      if (own_.takes_model) {
        out_.words.push_back(std::move(value));
      } else {
        ignore(typed.flag, "workers say which models there are");
      }
    } else if (typed.flag == "--model-name" || typed.flag == "--namespace-prefix") {
      value_of(typed);  // the command has none
      ignore(typed.flag, "workers say which models there are");
    } else if (typed.flag == "--dump-config-to") {
      out_.dump_config_to = value_of(typed);
    } else if (typed.flag == "--is-prefill-worker" || typed.flag == "--is-decode-worker") {
      put("--role", typed.flag == "--is-prefill-worker" ? "prefill" : "decode");
    } else if (typed.flag == "--load-aware") {
      load_aware_ = !typed.negated;
    } else if (typed.flag == "--router-conditional-disagg") {
      if (!typed.negated && !conditional_) {
        put("--router-conditional-disagg-policy", "isl_bounding");
      }
    } else if (typed.flag == "--router-conditional-disagg-config") {
      STATOR_CHECK(take_conditional(value_of(typed)));
    } else {
      return false;
    }
    return true;
  }

  Status take_conditional(const std::string& text) {
    const auto object = json::parse(text);
    if (!object || !object->is_object()) {
      return Error(Code::kInvalidArgument,
                   "--router-conditional-disagg-config must be a JSON object");
    }
    static constexpr auto kMembers = std::to_array<Renamed>({
        {"decode_busy_threshold", "--router-conditional-disagg-decode-busy-threshold"},
        {"eff_isl_ratio_threshold", "--router-conditional-disagg-eff-isl-ratio-threshold"},
        {"eff_isl_threshold", "--router-conditional-disagg-eff-isl-threshold"},
        {"policy", "--router-conditional-disagg-policy"},
        {"prefill_busy_threshold", "--router-conditional-disagg-prefill-busy-threshold"},
    });
    conditional_ = true;
    std::erase_if(out_.words, [](const std::string& word) {
      return word.starts_with("--router-conditional-disagg-policy=");
    });
    if (object->find("policy") == nullptr) {
      put("--router-conditional-disagg-policy", "isl_bounding");
    }
    for (const auto& [name, ours] : kMembers) {
      const json::Value* value = object->find(name);
      if (value != nullptr && !value->is_null()) {
        put(ours, value->is_string() ? std::string(value->as_string().value_or(""))
                                     : json::to_text(*value));
      }
    }
    return {};
  }

  std::span<const char* const> rest_;
  const OwnFlags& own_;
  TranslatedFlags out_;
  bool conditional_ = false;  // its policy was given
  bool load_aware_ = false;
};

bool is_truthy(const std::optional<std::string>& text) {
  std::string word = text.value_or("");
  std::ranges::transform(word, word.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word == "1" || word == "true" || word == "yes" || word == "on";
}

constexpr std::string_view kConditional = "DYN_ROUTER_CONDITIONAL_DISAGG_";

/// A member of DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG, a JSON object with the names that end `name`
/// in lower case. What is no object comes back as it is: no setting takes it.
std::optional<std::string> conditional_member(std::string_view name) {
  const auto text = read_env("DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG");
  if (!text) {
    return std::nullopt;
  }
  const auto object = json::parse(*text);
  if (!object || !object->is_object()) {
    return text;
  }
  std::string member(name.substr(kConditional.size()));
  std::ranges::transform(member, member.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const json::Value* value = object->find(member);
  if (value == nullptr || value->is_null()) {
    return std::nullopt;
  }
  return value->is_string() ? std::string(value->as_string().value_or("")) : json::to_text(*value);
}

/// The older weight of overlaps, under its three names.
std::optional<std::string> overlap_weight() {
  for (const char* name : {"DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT", "DYN_OVERLAP_SCORE_WEIGHT",
                           "DYN_KV_OVERLAP_SCORE_WEIGHT"}) {
    if (auto value = read_env(name)) {
      return value;
    }
  }
  return std::nullopt;
}

/// What DYN_ROUTER_LOAD_AWARE makes of a variable; the preset wins over its own value.
std::optional<std::string> load_aware_value(std::string_view name) {
  static constexpr auto kPreset = std::to_array<Renamed>({
      {"DYN_ROUTER_ASSUME_KV_REUSE", "false"},
      {"DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT", "0"},
      {"DYN_ROUTER_MODE", "kv"},
      {"DYN_ROUTER_TRACK_PREFILL_TOKENS", "true"},
      {"DYN_ROUTER_USE_KV_EVENTS", "false"},
  });
  const auto entry = std::ranges::find(kPreset, name, &Renamed::theirs);
  if (entry == kPreset.end() || !is_truthy(read_env("DYN_ROUTER_LOAD_AWARE"))) {
    return std::nullopt;
  }
  return std::string(entry->ours);
}

/// What stands for a variable of the router that is not there.
std::optional<std::string> router_stand_in(std::string_view name) {
  if (name == "DYN_ROUTER_OVERLAP_SCORE_CREDIT_DECAY") {
    return read_env("DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY");
  }
  if (name == "DYN_ROUTER_PREFILL_LOAD_SCALE") {
    return overlap_weight();
  }
  if (name == "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT") {
    const auto weight = overlap_weight();
    const bool zero = weight && weight->find_first_not_of("0.") == std::string::npos;
    return zero ? std::optional<std::string>("0") : std::nullopt;
  }
  if (!name.starts_with(kConditional)) {
    return std::nullopt;
  }
  auto member = conditional_member(name);
  const bool asked = read_env("DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG").has_value() ||
                     is_truthy(read_env("DYN_ROUTER_CONDITIONAL_DISAGG"));
  if (!member && asked && name.ends_with("_POLICY")) {
    return "isl_bounding";
  }
  return member;
}

/// What stands for a variable that is not there: an older name, or another that implies it.
std::optional<std::string> stand_in(std::string_view name) {
  if (auto value = router_stand_in(name)) {
    return value;
  }
  if (name == "DYN_DISCOVERY_BACKEND") {
    return read_env("DYN_STORE_KV");
  }
  if (name == "DYN_ROUTER_USE_KV_EVENTS") {
    return read_env("DYN_USE_KV_EVENTS");
  }
  if (name == "DYN_LOGGING_CONSOLE_FORMAT" && is_truthy(read_env("DYN_LOGGING_JSONL"))) {
    return "json";
  }
  if (name == "DYN_SYSTEM_PORT" && is_truthy(read_env("DYN_SYSTEM_ENABLED"))) {
    return "9090";
  }
  if (name == "DYN_CANARY_WAIT_TIME" && is_truthy(read_env("DYN_HEALTH_CHECK_ENABLED"))) {
    return "10";
  }
  return std::nullopt;
}

}  // namespace

Result<TranslatedFlags> translate_dynamo_flags(std::span<const char* const> words,
                                               const OwnFlags& own) {
  return Translator(words, own).run();
}

std::optional<std::string_view> unused_flag_advice(std::string_view flag) {
  const auto rule = std::ranges::find(kUnused, flag, &Unused::flag);
  return rule == kUnused.end() ? std::nullopt : std::optional(rule->advice);
}

std::string dynamo_value(std::string_view name, const std::string& value) {
  if (value == "None" || value == "none") {
    return name.contains("THRESHOLD") ? "-1" : value;
  }
  if (name == "DYN_LOGGING_CONSOLE_FORMAT") {
    return value == "jsonl" ? "json" : value == "readable" ? "human" : value;
  }
  return name == "DYN_ROUTER_PREFILL_LOAD_MODEL" && value == "aic" ? "learned" : value;
}

std::optional<std::string> read_dynamo_env(const std::string& name) {
  if (is_trace_variable(name)) {
    return read_trace_env(name);
  }
  auto value = read_env(name);
  if (!name.starts_with("DYN_")) {
    return value;
  }
  if (auto preset = load_aware_value(name)) {
    return preset;
  }
  if (!value) {
    return stand_in(name);
  }
  return dynamo_value(name, *value);
}

std::string discovery_place(const std::string& backend) {
  if (backend == "mem") {
    return "memory";
  }
  if (backend == "file") {
    const std::string folder = read_env("TMPDIR").value_or("/tmp") + "/dynamo_store_kv";
    return "file:" + read_env("DYN_FILE_KV").value_or(folder);
  }
  if (backend == "kubernetes") {
    return "kubernetes:" + read_env("POD_NAMESPACE").value_or("");
  }
  if (backend != "etcd") {
    return backend;
  }
  // http://a:2379,http://b:2379 → etcd://a:2379,b:2379
  std::string hosts;
  bool tls = false;
  const std::string given = read_env("ETCD_ENDPOINTS").value_or("http://localhost:2379");
  for (std::string_view rest = given; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    std::string_view host = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    tls |= host.starts_with("https://");
    if (const size_t scheme = host.find("://"); scheme != std::string_view::npos) {
      host.remove_prefix(scheme + 3);
    }
    while (host.ends_with('/')) {
      host.remove_suffix(1);
    }
    hosts += fmt::format("{}{}", hosts.empty() ? "" : ",", host);
  }
  return (tls ? "etcds://" : "etcd://") + hosts;
}

}  // namespace stator::app
