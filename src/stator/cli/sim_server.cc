// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "stator/app/engine_servers.h"
#include "stator/app/run_server.h"
#include "stator/app/signals.h"
#include "stator/app/worker_host.h"
#include "stator/cli/command.h"
#include "stator/core/log.h"
#include "stator/frontend/model_assets.h"
#include "stator/json/value.h"
#include "stator/lab/fake_engine/fake_server_service.h"
#include "stator/perf/timing_spec.h"

namespace stator::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPoll = 10ms;
constexpr uint32_t kBatchedTokensDefault = 8'192;
constexpr uint32_t kContextDefault = 32'768;
constexpr uint32_t kRanksMax = 64;  // each has ports of its own

/// The options of one invocation, each read with its own complaint.
class Options {
 public:
  explicit Options(const Invocation& invocation) : invocation_(invocation) {}

  std::string text(const char* flag, std::string otherwise) const {
    const auto found = invocation_.options.find(flag);
    return found == invocation_.options.end() ? std::move(otherwise) : found->second;
  }
  bool on(const char* flag) const { return invocation_.options.contains(flag); }

  Status number(const char* flag, uint64_t low, uint64_t high, uint64_t& into) const {
    const auto found = invocation_.options.find(flag);
    if (found == invocation_.options.end()) {
      return {};
    }
    const std::string& typed = found->second;
    const auto [end, error] = std::from_chars(typed.data(), typed.data() + typed.size(), into);
    if (error != std::errc() || end != typed.data() + typed.size() || into < low || into > high) {
      return Error(
          Code::kInvalidArgument,
          fmt::format("{} must be a whole number from {} to {}, not '{}'", flag, low, high, typed));
    }
    return {};
  }

  Status duration(const char* flag, Duration& into) const {
    const auto found = invocation_.options.find(flag);
    if (found == invocation_.options.end()) {
      return {};
    }
    STATOR_TRY(into, parse_duration(found->second), flag);
    return {};
  }

  /// The position of what was typed among `allowed`; 0 when nothing was.
  Result<size_t> choice(const char* flag, std::initializer_list<std::string_view> allowed) const {
    const auto found = invocation_.options.find(flag);
    if (found == invocation_.options.end()) {
      return 0;
    }
    const auto at = std::ranges::find(allowed, std::string_view(found->second));
    if (at == allowed.end()) {
      return Error(Code::kInvalidArgument, fmt::format("{} must be one of {}, not '{}'", flag,
                                                       fmt::join(allowed, ", "), found->second));
    }
    return static_cast<size_t>(at - allowed.begin());
  }

 private:
  const Invocation& invocation_;
};

/// --media: kinds with commas between them. Without it those that the folder has parts for.
Status read_media(const Options& options, fake_engine::FakeModel& model) {
  if (!options.on("--media")) {
    model.media = model.media_rules.kinds();
    return {};
  }
  const auto kinds = app::read_media_kinds(options.text("--media", ""));
  if (!kinds) {
    return Error(Code::kInvalidArgument,
                 "--media takes image, audio and video with commas between them, or none");
  }
  model.media = *kinds;
  return {};
}

Result<std::shared_ptr<const fake_engine::FakeModel>> read_model(const Options& options) {
  auto model = std::make_shared<fake_engine::FakeModel>();
  const std::string dir = options.text("--model-dir", "");
  if (dir.empty()) {
    uint64_t vocab_size = model->vocab_size;
    STATOR_CHECK(options.number("--vocab-size", 512, 1 << 20, vocab_size));
    model->vocab_size = static_cast<uint32_t>(vocab_size);
    model->last_token = model->vocab_size - 1;
    STATOR_CHECK(read_media(options, *model));
    return model;
  }
  if (options.on("--vocab-size")) {
    return Error(Code::kInvalidArgument,
                 "--vocab-size is for servers without --model-dir: the folder says how many");
  }
  STATOR_TRY(const auto assets, frontend::load_model_assets(dir));
  model->tokenizer = {assets, assets->tokenizer.get()};
  model->chat_template = {assets, assets->chat_template.get()};
  model->vocab_size = assets->tokenizer->vocab_size();
  const tokenizer::VocabularyFacts vocabulary = tokenizer::facts_of(*assets->tokenizer);
  model->first_token = vocabulary.first_printable;
  model->last_token = vocabulary.last_printable;
  if (!assets->eos_token_ids.empty()) {
    model->eos_token_ids = assets->eos_token_ids;
  }
  model->media_rules = assets->media_rules;
  STATOR_CHECK(read_media(options, *model));
  model->max_model_len =
      assets->architectural_context > 0 ? assets->architectural_context : kContextDefault;
  return model;
}

Status read_events(const Options& options, fake_engine::FakeConfig& config) {
  using fake_engine::EventForm;
  using fake_engine::EventHash;
  auto& events = config.events;
  events.enabled = !options.on("--no-events");
  events.endpoint = options.text("--event-endpoint", events.endpoint);
  events.replay_endpoint = options.text("--event-replay-endpoint", events.replay_endpoint);
  events.topic = options.text("--event-topic", events.topic);
  const bool old = config.release == fake_engine::Release::kOld;
  STATOR_TRY(const size_t form, options.choice("--event-form", {"map", "array"}));
  events.form = options.on("--event-form") ? static_cast<EventForm>(form)
                                           : (old ? EventForm::kArray : EventForm::kMap);
  STATOR_TRY(const size_t hash, options.choice("--event-hash", {"unsigned", "signed", "bytes"}));
  events.hash = options.on("--event-hash")
                    ? static_cast<EventHash>(hash)
                    : (config.dialect == fake_engine::Dialect::kSglang ? EventHash::kSigned
                                                                       : EventHash::kUnsigned);
  uint64_t steps = events.buffer_steps;
  STATOR_CHECK(options.number("--event-buffer-steps", 1, 10'000'000, steps));
  events.buffer_steps = steps;
  return {};
}

Status read_handoff(const Options& options, fake_engine::FakeConfig& config) {
  auto& handoff = config.handoff;
  STATOR_TRY(const size_t role, options.choice("--role", {"aggregated", "prefill", "decode"}));
  config.role = static_cast<fake_engine::Role>(role);
  handoff.host = options.text("--side-host", handoff.host);
  uint64_t port = 0;
  STATOR_CHECK(options.number("--side-port", 0, UINT16_MAX, port));
  STATOR_CHECK(options.number("--bootstrap-port", 0, UINT16_MAX - 1, port));
  handoff.port = static_cast<uint16_t>(port);
  STATOR_CHECK(options.duration("--handoff-lease", handoff.lease));
  STATOR_CHECK(options.duration("--bootstrap-wait", handoff.bootstrap_wait));
  return options.duration("--handoff-timeout", handoff.unreachable);
}

Result<fake_engine::FakeConfig> read_config(const Invocation& invocation, const Options& options) {
  fake_engine::FakeConfig config;
  const Settings& settings = invocation.settings;
  const auto dialect = fake_engine::find_dialect(options.text("--dialect", "vllm"));
  if (!dialect) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--dialect must be vllm, sglang, trtllm or llamacpp, not '{}'",
                             options.text("--dialect", "")));
  }
  config.dialect = *dialect;
  config.http = settings.frontend.http;
  config.engine = settings.worker.engine_config;
  config.engine.policy = engine::SchedulingPolicy::kPriority;
  if (config.engine.max_num_batched_tokens == 0) {
    config.engine.max_num_batched_tokens = kBatchedTokensDefault;
  }
  const engine::SimKnobs& sim = settings.worker.sim;
  config.engine.rules = *engine::find_rules(sim.rules);  // checked by the schema
  config.engine.sglang = sim.sglang;
  STATOR_TRY(config.timing, perf::make_timing(sim.timing, sim.linear));
  STATOR_TRY(config.draft_acceptance, engine::read_acceptance(sim.draft_acceptance));
  config.speedup = sim.speedup;
  config.decode_speedup = sim.decode_speedup;
  config.host_link = sim.host_link();
  if (options.on("--speedup")) {
    uint64_t speedup = 0;
    STATOR_CHECK(options.number("--speedup", 0, 1'000'000'000, speedup));
    config.speedup = static_cast<double>(speedup);
  }
  config.model_path = options.text("--model-dir", "m");
  config.model_name = options.text("--served-model-name", config.model_path);
  STATOR_TRY(const size_t release, options.choice("--release", {"current", "old"}));
  config.release = static_cast<fake_engine::Release>(release);
  config.scale_out = !options.on("--no-scale-out");
  config.dev_mode = !options.on("--no-dev-mode");
  config.incremental = options.on("--incremental");
  STATOR_TRY(const size_t lora, options.choice("--lora", {"yes", "no"}));
  // SGLang's events do not tell adapters' blocks apart, so it has none unless asked for.
  config.lora = options.on("--lora") ? lora == 0 : config.dialect == fake_engine::Dialect::kVllm;
  if (config.dialect == fake_engine::Dialect::kLlamacpp) {
    uint64_t slots = 4;
    STATOR_CHECK(options.number("--slots", 1, 1'024, slots));
    config.engine.max_num_seqs = static_cast<uint32_t>(slots);
  }
  config.dp_size = settings.worker.sim_dp_size;
  if (config.dp_size > kRanksMax) {
    return Error(Code::kInvalidArgument, fmt::format("--dp-size must be at most {} here, is {}",
                                                     kRanksMax, config.dp_size));
  }
  STATOR_CHECK(options.number("--seed", 0, UINT64_MAX, config.seed));
  uint64_t requests_max = config.requests_max;
  STATOR_CHECK(options.number("--requests-max", 1, UINT32_MAX, requests_max));
  config.requests_max = static_cast<uint32_t>(requests_max);
  STATOR_CHECK(options.duration("--startup-delay", config.startup_delay));
  STATOR_CHECK(read_events(options, config));
  STATOR_CHECK(read_handoff(options, config));
  return config;
}

Result<std::vector<fake_engine::Fault>> read_faults(const Options& options) {
  std::vector<fake_engine::Fault> faults;
  const std::string typed = options.text("--fault", "");
  if (typed.empty()) {
    return faults;
  }
  const auto value = json::parse(typed);
  if (!value || !value->is_array()) {
    STATOR_TRY(auto fault, fake_engine::parse_fault(typed), "--fault");
    faults.push_back(std::move(fault));
    return faults;
  }
  for (const auto& element : value->elements()) {
    STATOR_TRY(auto fault, fake_engine::parse_fault(json::to_text(element)), "--fault");
    faults.push_back(std::move(fault));
  }
  return faults;
}

/// Runs servers, one after another as restart faults want it, until a signal comes.
Status run_servers(const Settings& settings, fake_engine::FakeConfig config,
                   const std::shared_ptr<const fake_engine::FakeModel>& model,
                   std::vector<fake_engine::Fault> faults) {
  SystemClock clock;
  Metrics metrics;
  Signals signals;
  for (;;) {
    STATOR_TRY(auto server,
               fake_engine::FakeServer::create(config, model, std::move(faults), clock, metrics));
    faults.clear();
    config.http.port = server->port();
    log::info("sim-server", "ready", {{"port", server->port()}});
    app::announce(settings, "sim-server", server->announcement());
    std::optional<Duration> away;
    while (!away && !signals.wait_for(kPoll)) {
      away = server->restart_wanted();
    }
    server.reset();
    if (!away || signals.wait_for(*away)) {
      return {};
    }
  }
}

}  // namespace

Status run_sim_server(Invocation& invocation) {
  const Options options(invocation);
  STATOR_TRY(auto config, read_config(invocation, options));
  STATOR_TRY(const auto model, read_model(options));
  STATOR_TRY(auto faults, read_faults(options));
  return run_servers(invocation.settings, std::move(config), model, std::move(faults));
}

}  // namespace stator::cli
