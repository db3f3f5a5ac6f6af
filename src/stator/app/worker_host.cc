// SPDX-License-Identifier: Apache-2.0
#include "stator/app/worker_host.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>

#include "stator/app/kv_tiers.h"
#include "stator/app/sim_replies.h"
#include "stator/app/terminal.h"
#include "stator/app/version.h"
#include "stator/engine/core/engine_service.h"
#include "stator/engine/core/pooling_service.h"
#include "stator/engine/cpu/cpu_model_runner.h"
#include "stator/engine/cpu/model.h"
#include "stator/engine/cpu/pooling/cpu_pool_runner.h"
#include "stator/engine/handoff/port.h"
#include "stator/engine/sim/shared_sim_runner.h"
#include "stator/engine/sim/sim_pool_runner.h"
#include "stator/engine/sim/sim_runner.h"
#include "stator/io/read_file.h"
#include "stator/json/value.h"
#include "stator/perf/timing_spec.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::app {
namespace {

constexpr uint32_t kSimContextDefault = 32'768;
// A step of the cpu engine should not keep running sequences waiting for long.
constexpr uint32_t kCpuBatchedTokensDefault = 512;
/// All but a prompt's last pass move while it is computed.
constexpr uint32_t kHandoffPasses = 5;
constexpr uint32_t kSimBatchedTokensDefault = 8'192;
// Encoders keep nobody waiting for a next token; enough for matrix products to be at their best.
constexpr uint32_t kCpuPooledTokensDefault = 2'048;

std::string default_model_name(const std::string& model) {
  if (!std::filesystem::exists(model)) {
    return model;  // ORG/NAME as typed
  }
  const auto path = std::filesystem::canonical(model);
  return std::filesystem::is_directory(path) ? path.filename().string() : path.stem().string();
}

/// It travels in the worker's record.
Result<std::string> read_chat_template(const std::string& path) {
  constexpr size_t kBytesMax = 128 << 10;
  return path.empty() ? std::string() : io::read_file(path, kBytesMax);
}

/// "a, b" → {"a", "b"}
std::vector<std::string> split_names(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view name = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
    name = name.substr(0, name.find_last_not_of(' ') + 1);
    if (!name.empty()) {
      names.emplace_back(name);
    }
  }
  return names;
}

/// Rows of the model's embedding: config.json's vocab_size, which may be more than the tokenizer
/// fills, or the tokenizer's. Ids beyond it must not reach an engine.
uint32_t read_vocab_size(const std::string& model_dir, uint32_t tokenizer_size) {
  const auto text = io::read_file(std::filesystem::path(model_dir) / "config.json");
  const auto config = text ? json::parse(*text) : Result<json::Value>(json::Value());
  if (!config) {
    return tokenizer_size;
  }
  const json::Value& nested = config->at("text_config");
  const auto size = (nested.is_object() ? nested : *config).at("vocab_size").as_uint64();
  return size.value_or(0) > 0 ? static_cast<uint32_t>(*size) : tokenizer_size;
}

}  // namespace

struct WorkerHost::Loaded {
  std::shared_ptr<const engine::cpu::Model> cpu;  // shared by the runners, see engine::cpu::Model
  std::shared_ptr<const engine::cpu::PoolingModel> cpu_pooling;  // the same; null: it generates
  std::shared_ptr<storage::LowerTiers> tiers;  // shared by the engines; null: none
};

namespace {

engine::cpu::PromptLookup prompt_lookup(const CpuSettings& cpu) {
  return {.tokens = cpu.prompt_lookup,
          .match_least = cpu.prompt_lookup_match,
          .match_most = std::max(cpu.prompt_lookup_match, 4U)};
}

/// With the adapters that are there from the start.
Result<std::shared_ptr<engine::cpu::LoraShelf>> make_shelf(
    std::shared_ptr<const engine::cpu::Model> model, const CpuSettings& cpu) {
  auto shelf = std::make_shared<engine::cpu::LoraShelf>(
      std::move(model),
      engine::cpu::LoraShelf::Limits{
          .adapters = cpu.max_loras, .rank = cpu.max_lora_rank, .folder = cpu.lora_folder});
  std::string_view rest = cpu.lora_modules;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const size_t equals = item.find('=');
    if (equals == item.npos || equals == 0 || equals + 1 == item.size()) {
      return Error(Code::kInvalidArgument,
                   fmt::format("engine.lora_modules: '{}' is not NAME=FOLDER", item));
    }
    STATOR_CHECK(shelf->load(item.substr(0, equals), std::string(item.substr(equals + 1))));
  }
  return shelf;
}

/// Null for an engine that is another one.
Result<std::shared_ptr<engine::cpu::LoraShelf>> set_cpu_options(
    engine::EngineConfig& config, std::shared_ptr<const engine::cpu::Model> model,
    const CpuSettings& cpu) {
  if (model == nullptr) {
    return std::shared_ptr<engine::cpu::LoraShelf>();
  }
  STATOR_TRY(auto shelf, make_shelf(std::move(model), cpu));
  config.prefill_budget = cpu.prefill_budget;
  config.policy = cpu.scheduling_policy == "fcfs" ? engine::SchedulingPolicy::kFcfs
                                                  : engine::SchedulingPolicy::kPriority;
  config.adapters = shelf;
  return shelf;
}

}  // namespace

Result<std::string> resolve_model_dir(const std::string& model, const weights::HubConfig& config) {
  std::string shown;
  const bool terminal = stdout_is_terminal();
  auto dir = weights::resolve_model(
      model, config, [&](std::string_view file, uint64_t done, uint64_t total) {
        const std::string line =
            fmt::format("downloading {} {:.1f} of {:.1f} MB", file, static_cast<double>(done) / 1e6,
                        static_cast<double>(total) / 1e6);
        if (terminal && line != shown) {
          print("\r\x1b[K" + line);
          shown = line;
        }
      });
  if (!shown.empty()) {
    print("\n");
  }
  return dir;
}

Status check_model(const std::string& model, const Settings& settings) {
  if (model.empty()) {
    return {};
  }
  const auto dir = resolve_model_dir(model, settings.hub);
  return dir ? Status() : Status(dir.error().clone());
}

WorkerHost::WorkerHost(const Settings& settings, Clock& clock, Metrics& metrics)
    : settings_(settings), clock_(clock), metrics_(metrics), random_(Random::from_entropy()) {}

WorkerHost::~WorkerHost() = default;

Result<std::unique_ptr<WorkerHost>> WorkerHost::open(const std::string& model,
                                                     const Settings& settings, Clock& clock,
                                                     Metrics& metrics, Wanted wanted) {
  EngineServers* const servers = wanted.servers;
  auto host = std::unique_ptr<WorkerHost>(new WorkerHost(settings, clock, metrics));
  host->servers_ = servers;
  if (const HandoffSettings& handoff = settings.worker.handoff;
      handoff.prefill_workers > 0 && handoff.decode_workers == 0) {
    return Error(Code::kInvalidArgument,
                 "--prefill-workers without --decode-workers: their prompts need workers that "
                 "answer; prefill workers alone are stator worker --role prefill");
  }
  STATOR_TRY(host->meters_, WorkerMeters::start(settings, clock, metrics));
  const std::string& from = servers != nullptr && model.empty() ? servers->model_root() : model;
  if (from.empty()) {
    return Error(Code::kInvalidArgument,
                 "MODEL is missing: the folder or hub name with the model's tokenizer");
  }
  STATOR_TRY(host->model_dir_, resolve_model_dir(from, settings.hub));
  host->model_name_ = settings.worker.model_name;
  if (host->model_name_.empty()) {
    host->model_name_ = servers != nullptr ? servers->model_name() : default_model_name(from);
  }
  STATOR_TRY(host->chat_template_, read_chat_template(settings.worker.chat_template));
  // Engines of our own take and give ids; a tokenizer is a hundred times the rest of such a worker.
  if (servers != nullptr || wanted.texts == Texts::kKept || !settings.worker.sim_reply.empty()) {
    STATOR_TRY(host->assets_, frontend::load_model_assets(host->model_dir_, host->chat_template_));
    host->facts_ = frontend::facts_of(*host->assets_);
  } else {
    STATOR_TRY(host->facts_, frontend::load_model_facts(host->model_dir_, host->chat_template_));
    ::malloc_trim(0);  // reading a large vocabulary took ten times what such a worker keeps
  }
  host->loaded_ = std::make_unique<Loaded>();
  host->vocab_size_ = read_vocab_size(host->model_dir_, host->facts_.vocabulary.vocab_size);
  if (settings.worker.engine == "cpu") {
    STATOR_TRY(host->loaded_->cpu_pooling,
               engine::cpu::load_pooling_model(host->model_dir_, settings.worker.task));
    if (host->loaded_->cpu_pooling == nullptr) {
      if (settings.worker.task != "auto" && settings.worker.task != "generate") {
        return Error(Code::kInvalidArgument,
                     fmt::format("worker.task {}: the model in {} is made for generating",
                                 settings.worker.task, host->model_dir_));
      }
      STATOR_TRY(host->loaded_->cpu, engine::cpu::load_model(host->model_dir_));
    }
    STATOR_CHECK(host->open_tiers());
  } else if (settings.kv.any()) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("kv.host_bytes, kv.disk, kv.object and kv.store are for engine 'cpu'; "
                    "engine '{}' keeps its KV cache itself (simulated: engine.host_blocks)",
                    settings.worker.engine));
  }
  return host;
}

/// Of the CPU engine's blocks.
engine::cpu::KvLayout WorkerHost::kv_layout() const {
  const engine::cpu::ModelConfig& shape = loaded_->cpu->config;
  engine::cpu::KvLayout layout{.layers = shape.layers,
                               .kv_heads = shape.kv_heads,
                               .head_dim = shape.head_dim,
                               .block_size = settings_.worker.engine_config.block_size};
  for (const auto type :
       {engine::cpu::KvType::kF16, engine::cpu::KvType::kBf16, engine::cpu::KvType::kInt8}) {
    if (settings_.worker.cpu.kv_cache_type == to_string(type)) {
      layout.type = type;
    }
  }
  return layout;
}

/// Tiers below host memory, for a model that generates.
Status WorkerHost::open_tiers() {
  if (loaded_->cpu == nullptr) {
    return settings_.kv.any() ? Status(Error(Code::kInvalidArgument,
                                             "kv.host_bytes, kv.disk, kv.object and kv.store are "
                                             "for models that generate"))
                              : Status();
  }
  KvModel model{.folder = model_dir_, .layout = kv_layout()};
  if (settings_.kv.any_lower() || some_hand_over()) {
    STATOR_TRY(space_, kv_namespace(settings_.kv, model));
    model.space = space_;
  }
  STATOR_TRY(loaded_->tiers, open_lower_tiers(settings_.kv, model, clock_, metrics_));
  return {};
}

/// Some worker of this process gives or takes prompts.
bool WorkerHost::some_hand_over() const {
  const WorkerSettings& worker = settings_.worker;
  return settings_.worker.handoff.workers() > 0 || worker.role == "prefill" ||
         worker.role == "decode";
}

/// Of the next worker, an engine of ours.
Result<inference::WorkerRole> WorkerHost::own_role() const {
  const WorkerSettings& worker = settings_.worker;
  if (made_ < settings_.worker.handoff.prefill_workers) {
    return inference::WorkerRole::kPrefill;
  }
  if (made_ < settings_.worker.handoff.workers()) {
    return inference::WorkerRole::kDecode;
  }
  if (worker.role == "auto") {
    return inference::WorkerRole::kAggregated;
  }
  const auto role = inference::find_role(worker.role);
  if (!role) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("worker.role {}: must be auto, aggregated, prefill or decode", worker.role));
  }
  return *role;
}

/// Null for a worker that does everything.
Result<std::shared_ptr<engine::handoff::Port>> WorkerHost::open_port(
    inference::WorkerRole role, const engine::EngineConfig& config, uint64_t block_bytes) {
  if (role == inference::WorkerRole::kAggregated) {
    return std::shared_ptr<engine::handoff::Port>();
  }
  storage::Digest space = space_;
  if (loaded_->cpu == nullptr) {  // simulated blocks have no bytes: their tokens are all there is
    space = storage::namespace_of({.model = "stator-sim",
                                   .revision = facts_.checksum,
                                   .salt = settings_.kv.salt,
                                   .block_tokens = config.block_size});
  }
  return engine::handoff::Port::open({.role = role,
                                      .engine_kind = config.kind,
                                      .engine_name = config.name,
                                      .space = space,
                                      .block_tokens = config.block_size,
                                      .block_bytes = block_bytes,
                                      .staging_bytes = settings_.worker.handoff.bytes,
                                      .lease = settings_.worker.server.handoff_lease,
                                      .patience = settings_.worker.handoff.timeout,
                                      .listen_host = settings_.worker.listen_host},
                                     clock_, metrics_);
}

bool WorkerHost::Worker::owes_prompts() const {
  return (server != nullptr && server->owes_prompts()) || (port != nullptr && port->owed() > 0);
}

Result<std::unique_ptr<engine::ModelRunner>> WorkerHost::make_runner(
    engine::EngineConfig& config) const {
  if (loaded_->cpu != nullptr) {
    const uint64_t block_bytes = kv_layout().block_bytes();
    config.total_blocks = static_cast<uint32_t>(
        std::clamp<uint64_t>(settings_.worker.kv_cache_bytes / block_bytes, 2, 1ULL << 28));
    if (config.host_blocks == 0) {
      config.host_blocks = host_blocks(settings_.kv, block_bytes, config.total_blocks);
    }
    STATOR_TRY(const inference::WorkerRole role, own_role());
    if (config.host_blocks == 0 &&
        (role == inference::WorkerRole::kDecode || loaded_->tiers != nullptr)) {
      config.host_blocks = staging_blocks(config.total_blocks);
    }
    STATOR_TRY(auto runner, engine::cpu::CpuModelRunner::create(
                                loaded_->cpu, {.block_size = config.block_size,
                                               .kv_blocks = config.total_blocks,
                                               .host_blocks = config.host_blocks,
                                               .threads = settings_.worker.threads,
                                               .seed = made_,
                                               .max_model_len = config.max_model_len,
                                               .kv_type = kv_layout().type,
                                               .lookup = prompt_lookup(settings_.worker.cpu),
                                               .encoder = text_encoder()}));
    config.token_filters = true;
    return runner;
  }
  const uint32_t context = facts_.architectural_context;
  const bool shared =
      own_role().value_or(inference::WorkerRole::kAggregated) != inference::WorkerRole::kAggregated;
  std::vector<engine::ScriptedReply> replies;
  if (!settings_.worker.sim_reply.empty()) {
    STATOR_TRY(replies, read_sim_replies(settings_.worker.sim_reply, *assets_->tokenizer));
  }
  std::function<std::string_view(TokenId)> token_bytes;
  if (assets_ != nullptr) {
    token_bytes = [assets = assets_](TokenId token) {
      return assets->tokenizer->token_bytes(token);
    };
  }
  STATOR_TRY(auto drafts, engine::read_acceptance(settings_.worker.sim.draft_acceptance));
  STATOR_TRY(auto timing,
             perf::make_timing(settings_.worker.sim.timing, settings_.worker.sim.linear));
  engine::SimRunnerConfig sim{.vocab_size = facts_.vocabulary.vocab_size,
                              .max_model_len = context > 0 ? context : kSimContextDefault,
                              .block_size = config.block_size,
                              .first_token = facts_.vocabulary.first_printable,
                              .last_token = facts_.vocabulary.last_printable,
                              .timing = std::move(timing),
                              .speedup = settings_.worker.sim.speedup,
                              .decode_speedup = settings_.worker.sim.decode_speedup,
                              .host_link = settings_.worker.sim.host_link(),
                              .draft_acceptance = std::move(drafts),
                              .replies = std::move(replies),
                              .token_bytes = std::move(token_bytes)};
  return shared ? engine::make_shared_sim_runner(std::move(sim), config.total_blocks,
                                                 config.host_blocks)
                : engine::make_sim_runner(sim);
}

/// Of the CPU engine's pooling model, or of a simulated one: null where the engine only generates.
Result<std::unique_ptr<engine::PoolRunner>> WorkerHost::make_pool_runner() const {
  const WorkerSettings& worker = settings_.worker;
  if (loaded_->cpu_pooling != nullptr) {
    return engine::cpu::CpuPoolRunner::create(
        loaded_->cpu_pooling,
        {.threads = worker.threads, .max_model_len = worker.engine_config.max_model_len});
  }
  if (worker.engine != "sim" || worker.task == "generate") {
    return std::unique_ptr<engine::PoolRunner>();
  }
  STATOR_TRY(auto timing, perf::make_timing(worker.sim.timing, worker.sim.linear));
  const uint32_t context = facts_.architectural_context;
  engine::SimPoolConfig config{.vocab_size = facts_.vocabulary.vocab_size,
                               .max_model_len = context > 0 ? context : kSimContextDefault,
                               .width = worker.sim_vector_width,
                               .timing = std::move(timing),
                               .speedup = worker.sim.speedup};
  if (worker.task == "embed") {
    config.tasks = {inference::PoolTask::kEmbed, inference::PoolTask::kTokenEmbed};
  } else if (worker.task != "auto") {
    config.tasks = {worker.task == "score" ? inference::PoolTask::kScore
                                           : inference::PoolTask::kClassify};
  }
  return engine::make_sim_pool_runner(config);
}

/// Token bytes for grammars, read when the first request has one: most workers never need them.
engine::VocabularySource WorkerHost::vocabulary_source() const {
  return [assets = assets_, folder = model_dir_,
          size = vocab_size_]() -> Result<std::shared_ptr<const guided::Vocabulary>> {
    std::unique_ptr<const tokenizer::Tokenizer> own;
    if (assets == nullptr) {
      STATOR_TRY(own, tokenizer::Tokenizer::load(folder));
    }
    const tokenizer::Tokenizer& tokens = own != nullptr ? *own : *assets->tokenizer;
    auto vocabulary = std::make_shared<const guided::Vocabulary>(
        size, [&tokens](TokenId id) -> guided::Vocabulary::Token {
          if (!tokens.contains(id)) {
            return {};
          }
          return {.bytes = tokens.token_bytes(id), .special = tokens.is_special(id)};
        });
    return vocabulary;
  };
}

/// For bad_words. A worker of its own reads the tokenizer when the first request has some.
engine::TextEncoder WorkerHost::text_encoder() const {
  return
      [assets = assets_, folder = model_dir_, own = std::shared_ptr<const tokenizer::Tokenizer>()](
          std::string_view text) mutable -> Result<std::vector<TokenId>> {
        if (assets == nullptr && own == nullptr) {
          STATOR_TRY(own, tokenizer::Tokenizer::load(folder));
        }
        std::vector<TokenId> out;
        STATOR_CHECK((assets != nullptr ? *assets->tokenizer : *own).encode(text, {}, out));
        return out;
      };
}

/// Limits of an engine that pools, beside or instead of one that generates by `config`.
engine::PoolingConfig WorkerHost::make_pooling_config(const engine::EngineConfig& config) const {
  const uint32_t wanted = settings_.worker.engine_config.max_num_batched_tokens;
  const uint32_t usual = config.kind == "sim" ? kSimBatchedTokensDefault : kCpuPooledTokensDefault;
  return {.kind = config.kind,
          .version = config.version,
          .name = config.name,
          .max_num_batched_tokens = wanted > 0 ? wanted : usual,
          .max_model_len = config.max_model_len,
          .waiting_max = config.waiting_max,
          .block_size = config.block_size};
}

Result<WorkerHost::Worker> WorkerHost::make_own_engine() {
  STATOR_TRY(const inference::WorkerRole role, own_role());
  engine::EngineConfig config = settings_.worker.engine_config;
  config.kind = settings_.worker.engine;
  config.version = version();
  config.name = fmt::format("{}{}", config.kind, made_);
  config.tier_load_timeout = settings_.kv.load_timeout;
  config.eviction = kv::find_eviction(settings_.kv.eviction).value_or(config.eviction);
  if (config.kind == "sim") {
    config.rules = *engine::find_rules(settings_.worker.sim.rules);  // checked by the schema
    config.sglang = settings_.worker.sim.sglang;
  }
  STATOR_TRY(auto shelf, set_cpu_options(config, loaded_->cpu, settings_.worker.cpu));
  if (config.max_num_batched_tokens == 0) {
    config.max_num_batched_tokens =
        loaded_->cpu != nullptr ? kCpuBatchedTokensDefault : kSimBatchedTokensDefault;
  }
  const bool simulated = config.kind == "sim";
  config.handoff_passes = simulated || !config.enable_chunked_prefill ? 1 : kHandoffPasses;
  if (!simulated && settings_.worker.sim_dp_size > 1) {
    return Error(Code::kInvalidArgument, fmt::format("engine.dp_size {}: engine '{}' has one rank",
                                                     settings_.worker.sim_dp_size, config.kind));
  }
  STATOR_TRY(auto pooling, make_pool_runner());
  const engine::PoolingConfig pooling_config = make_pooling_config(config);
  Worker worker;
  const std::string& task = settings_.worker.task;
  if (pooling != nullptr && (!simulated || task != "auto")) {
    if (role != inference::WorkerRole::kAggregated) {
      return Error(Code::kInvalidArgument,
                   fmt::format("worker.role {}: a model that generates nothing has no prompts to "
                               "hand over",
                               to_string(role)));
    }
    worker.engine =
        engine::make_pooling_engine(pooling_config, std::move(pooling), clock_, metrics_);
    worker.ready_at = clock_.now() + settings_.worker.sim_startup_time;
    return worker;
  }
  if (role == inference::WorkerRole::kDecode && simulated && config.host_blocks == 0) {
    config.host_blocks = staging_blocks(config.total_blocks);
  }
  std::vector<std::unique_ptr<engine::ModelRunner>> runners;
  for (uint32_t rank = 0; rank < settings_.worker.sim_dp_size; ++rank) {
    STATOR_TRY(auto runner, make_runner(config));
    runners.push_back(std::move(runner));
  }
  STATOR_TRY(worker.port,
             open_port(role, config, runners.front()->device_block(engine::BlockId(0)).size()));
  STATOR_TRY(worker.engine,
             make_engine(config, std::move(runners), clock_, metrics_, vocabulary_source(),
                         {.lower = loaded_->tiers, .port = worker.port}));
  worker.own = std::make_unique<OwnEngine>(*worker.engine, std::move(shelf), model_name_);
  if (simulated) {
    const engine::SimFaults& faults = settings_.worker.sim_faults;
    STATOR_CHECK(validate(faults));
    if (faults.any()) {
      worker.engine =
          make_faulty_engine(std::move(worker.engine), faults, [] { ::raise(SIGKILL); }, metrics_);
    }
    worker.ready_at = clock_.now() + settings_.worker.sim_startup_time;
  }
  if (pooling != nullptr) {
    worker.engine = engine::make_pooling_engine(pooling_config, std::move(pooling), clock_,
                                                metrics_, std::move(worker.engine));
  }
  return worker;
}

Result<WorkerHost::Worker> WorkerHost::make_server_engine() {
  STATOR_TRY(auto engine, servers_->make_engine(made_, *assets_, vocab_size_));
  Worker worker;
  STATOR_TRY(worker.events, servers_->follow_events(made_, *engine));
  worker.server = engine.get();
  worker.engine = std::move(engine);
  return worker;
}

bool WorkerHost::Worker::refresh(TimePoint now) {
  bool ready = now >= ready_at;
  std::vector<std::string> adapters;
  if (server != nullptr) {
    ready = server->healthy() && !server->asleep();
    adapters = server->adapters();
  } else if (own != nullptr) {
    ready = ready && !own->asleep();
    adapters = own->adapters();
  }
  const auto state = ready ? discovery::InstanceState::kReady : discovery::InstanceState::kStarting;
  const bool changed = state != record.state || adapters != record.model.adapters;
  record.state = state;
  record.model.adapters = std::move(adapters);
  return changed;
}

uint32_t WorkerHost::count(uint32_t usual) const {
  if (servers_ != nullptr) {
    return static_cast<uint32_t>(servers_->count());
  }
  if (settings_.worker.handoff.workers() > 0) {
    return settings_.worker.handoff.workers();
  }
  return settings_.worker.count == 0 ? usual : settings_.worker.count;
}

std::string WorkerHost::shown_place() const {
  return servers_ == nullptr ? "local" : servers_->shown_url(made_ - 1);
}

std::string component_of(const WorkerSettings& worker, const engine::EngineInfo& info) {
  if (!worker.component.empty()) {
    return worker.component;
  }
  return info.handoff.role == inference::WorkerRole::kPrefill ? "prefill" : "backend";
}

Result<WorkerHost::Worker> WorkerHost::make_worker() {
  STATOR_TRY(Worker worker, servers_ != nullptr ? make_server_engine() : make_own_engine());
  ++made_;
  // 53 bits: exact in JSON and JavaScript; never zero.
  worker.record.key.worker = WorkerId((random_.next() >> 11) | 1);
  worker.engine = meters_->watch(std::move(worker.engine), worker.record.key.worker, model_name_);
  STATOR_CHECK(worker.engine->start());
  meters_->loaded();
  fill_record(worker);
  return worker;
}

void WorkerHost::fill_record(Worker& worker) {
  const engine::EngineInfo& info = worker.engine->info();
  worker.record.key.namespace_name = settings_.spaces.of_workers();
  worker.record.key.component = component_of(settings_.worker, info);
  worker.record.incarnation =
      Incarnation(static_cast<uint64_t>(clock_.wall_now().time_since_epoch().count()));
  worker.record.state = clock_.now() < worker.ready_at ? discovery::InstanceState::kStarting
                                                       : discovery::InstanceState::kReady;
  worker.record.started_at_ms = unix_seconds(clock_.wall_now()) * 1000;
  worker.record.model = {
      .name = model_name_,
      .aliases = split_names(settings_.worker.aliases),
      .adapters = worker.server != nullptr ? worker.server->adapters()
                  : worker.own != nullptr  ? worker.own->adapters()
                                           : std::vector<std::string>(),
      .taints = split_names(settings_.worker.taints),
      .model_path = std::filesystem::absolute(model_dir_).string(),
      .architectural_context = facts_.architectural_context,
      .context_length = info.max_model_len,
      .block_size = info.block_size,
      .total_kv_blocks = info.total_blocks,
      .max_num_seqs = info.max_num_seqs,
      .max_num_batched_tokens = info.max_num_batched_tokens,
      .vocab_size = info.vocab_size,
      .dp_size = info.dp_size,
      .kv_events = servers_ == nullptr ? info.kv_events : worker.events.feed != nullptr,
      .engine_kind = info.kind,
      .engine_version = info.version,
      .eos_token_ids = facts_.eos_token_ids,
      .tool_call_parser = settings_.worker.tool_call_parser,
      .chat_template = chat_template_,
      .default_thinking_mode = settings_.worker.default_thinking_mode == "auto"
                                   ? std::string()
                                   : settings_.worker.default_thinking_mode,
      .reasoning_parser = settings_.worker.reasoning_parser,
      .structured_output = info.structured_output,
      .structured_replay = info.structured_replay,
      .prompt_logprobs = info.prompt_logprobs,
      .token_filters = info.token_filters,
      .media = info.media,
      .handoff = info.handoff,
      .pool = info.pool,
      .checksum = facts_.checksum};
}

Result<std::unique_ptr<EngineServers>> connect_servers(const Settings& settings, Signals& signals,
                                                       Clock& clock, Metrics& metrics) {
  if (!is_engine_server(settings.worker.engine)) {
    return std::unique_ptr<EngineServers>();
  }
  return EngineServers::connect(settings, signals, clock, metrics);
}

void wait_and_report(Signals& signals, const Clock& clock, std::vector<WorkerHost::Worker>& workers,
                     std::span<const std::unique_ptr<discovery::Registration>> registrations) {
  constexpr Duration kLook = std::chrono::milliseconds(100);
  while (!signals.wait_for(kLook)) {
    for (size_t i = 0; i < workers.size(); ++i) {
      if (workers[i].refresh(clock.now())) {
        if (workers[i].on_record) {
          workers[i].on_record(workers[i].record);
        }
        registrations[i]->update(workers[i].record).ignore("told again at the next change");
      }
    }
  }
}

}  // namespace stator::app
