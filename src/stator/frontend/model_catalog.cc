// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/model_catalog.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "stator/core/log.h"
#include "stator/router/index/index_service.h"
#include "stator/tokenizer/long_words.h"
#include "stator/tokenizer/pre_token_cache.h"

namespace stator::frontend {
namespace {

WorkerKey key_of(WorkerId worker, uint32_t dp_rank = 0) {
  return {worker, dp_rank};
}

// Blocks that a worker may tell of while its model is loaded (a few seconds); with more it starts
// from nothing, which under-counts.
constexpr size_t kEarlyBlocksMax = 4U << 20;
// Workers whose place is remembered, beside those that are here: for log lines and receipts of
// those that went.
constexpr size_t kPlacesMax = 4096;
// More ranks of one worker are not believed.
constexpr uint32_t kDpRanksMax = 1024;

using router::IndexService;

Result<ModelParsers> find_parsers(const ModelSources& sources, const discovery::ModelCard& card,
                                  const ModelAssets& assets) {
  const parsers::FamilyRegistry& families =
      sources.families == nullptr ? parsers::FamilyRegistry::builtin() : *sources.families;
  STATOR_TRY(ModelParsers chosen, choose_parsers(families,
                                                 {.tools = card.tool_call_parser,
                                                  .reasoning = card.reasoning_parser,
                                                  .chat_template = assets.chat_template_text,
                                                  .model_name = card.name},
                                                 *assets.tokenizer));
  log::info("frontend", "how the model's output is read",
            {{"model", card.name},
             {"tool_call_parser", chosen.tools == nullptr ? "none" : chosen.tools->name},
             {"reasoning_parser", chosen.reasoning == nullptr ? "none" : chosen.reasoning->name},
             {"why", chosen.why}});
  return chosen;
}

/// Whom a worker may be paired with, whether it may be given a whole request, and for which
/// adapters.
std::vector<std::string> taints_of(const discovery::ModelCard& card) {
  const inference::HandoffAbility& ability = card.handoff;
  std::vector<std::string> taints;
  for (const std::string& adapter : card.adapters) {
    taints.push_back(adapter_taint(adapter));
  }
  if (!ability.kind.empty()) {
    taints.push_back(router::handoff_taint(ability.kind));
  }
  if (ability.runs_whole) {
    taints.emplace_back(router::kRunsWholeTaint);
  }
  std::ranges::copy_if(card.taints, std::back_inserter(taints), [](const std::string& taint) {
    return !taint.starts_with("stator.");  // those are what this process says of workers
  });
  return taints;
}

// What a card says of its model, beside what is to be loaded.
void copy_facts(const discovery::ModelCard& card, ServedModel& model) {
  model.name = card.name;
  model.context_length = card.context_length;
  model.block_size = std::max(1U, card.block_size);
  model.vocab_size = card.vocab_size;
  model.eos_token_ids =
      card.eos_token_ids.empty() ? model.assets->eos_token_ids : card.eos_token_ids;
  model.structured_output = card.structured_output;
  model.structured_replay = card.structured_replay;
  model.prompt_logprobs = card.prompt_logprobs;
  model.token_filters = card.token_filters;
  model.default_thinking_mode = card.default_thinking_mode;
  model.media = card.media;
  model.media_in_text = card.engine_kind == "llamacpp";
  model.pool = card.pool;
}

}  // namespace

std::string adapter_taint(std::string_view adapter) {
  return "stator.lora/" + std::string(adapter);
}

bool ServedModel::ready() const {
  return whole_workers.load(std::memory_order_relaxed) > 0 ||
         (split_workers.load(std::memory_order_relaxed) > 0 && prefill->has_workers());
}

router::RouterService& ModelCatalog::Enrolled::router() const {
  return ability.role == inference::WorkerRole::kPrefill ? model->prefill->prefill()
                                                         : *model->router;
}

void ModelCatalog::count(const Enrolled& worker, int change) {
  if (worker.ability.role == inference::WorkerRole::kPrefill) {
    return;
  }
  auto& counter =
      worker.ability.runs_whole ? worker.model->whole_workers : worker.model->split_workers;
  counter.fetch_add(static_cast<uint32_t>(change), std::memory_order_relaxed);
}

void ModelCatalog::count_adapters(const Enrolled& worker, int change) {
  for (const std::string& name : worker.adapters) {
    for (std::string key : {worker.model->name + ':' + name, name}) {
      Adapter& adapter = adapters_[key];
      if (adapter.workers == 0) {
        adapter.named = {worker.model, name};
      }
      if (adapter.named.model != worker.model) {
        continue;  // another model had the bare name first
      }
      adapter.workers += static_cast<uint32_t>(change);
      if (adapter.workers == 0) {
        adapters_.erase(key);
      }
    }
  }
}

void ModelCatalog::count_aliases(const Enrolled& worker, int change) {
  for (const std::string& name : worker.aliases) {
    Alias& alias = aliases_[name];
    if (alias.workers == 0) {
      alias.model = worker.model;
    }
    if (alias.model != worker.model) {
      continue;  // another model had it first
    }
    alias.workers += static_cast<uint32_t>(change);
    if (alias.workers == 0) {
      aliases_.erase(name);
    }
  }
}

void ModelCatalog::show_adapters(const std::vector<std::string>& before,
                                 const std::vector<std::string>& after) {
  const auto show = [this](const std::string& name) STATOR_REQUIRES(mutex_) {
    const auto known = adapters_.find(name);
    const uint32_t workers = known == adapters_.end() ? 0 : known->second.workers;
    const MetricLabels labels = {{"endpoint", "generate"}, {"lora", name}};
    metrics_.gauge("dynamo_frontend_lora_replica_factor", "workers that have the adapter", labels)
        .set(workers);
    metrics_.gauge("dynamo_frontend_lora_is_active", "whether any worker has the adapter", labels)
        .set(workers > 0 ? 1 : 0);
  };
  const auto count = [this](const char* name, const char* help) {
    metrics_.counter(name, help, {{"endpoint", "generate"}}).add();
  };
  for (const std::string& name : after) {
    if (std::ranges::find(before, name) == before.end()) {
      count("dynamo_frontend_lora_churn_loads_total", "adapters that a worker loaded");
    }
    show(name);
  }
  for (const std::string& name : before) {
    if (std::ranges::find(after, name) == after.end()) {
      count("dynamo_frontend_lora_churn_unloads_total", "adapters that a worker dropped");
      show(name);
    }
  }
}

ModelCatalog::ModelCatalog(router::RouterConfig config, ModelSources sources, const Clock& clock,
                           Metrics& metrics, router::ReceiptLog& receipts)
    : router_config_(std::move(config)),
      sources_(std::move(sources)),
      clock_(clock),
      metrics_(metrics),
      receipts_(receipts),
      load_failures_(metrics.counter("stator_frontend_model_load_failures_total",
                                     "models whose files could not be read")),
      mismatches_(metrics.counter("stator_frontend_card_mismatches_total",
                                  "workers kept out because their model differs from the others'")),
      loader_("model-loader", [this] { load_loop(); }) {}

ModelCatalog::~ModelCatalog() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  loader_.join();
}

Result<std::shared_ptr<ServedModel>> ModelCatalog::make_model(const discovery::ModelCard& card) {
  STATOR_TRY(const std::string dir, sources_.resolve_path(card.model_path));
  auto model = std::make_shared<ServedModel>();
  STATOR_TRY(model->assets, sources_.load_assets(dir, card.chat_template));
  STATOR_TRY(model->router,
             router::RouterService::create(router_config_, card.name, clock_, metrics_, receipts_));
  STATOR_TRY(model->prefill,
             router::PrefillRouterService::create(router_config_, card.name, clock_, metrics_,
                                                  receipts_, model->router));
  if (sources_.announcer) {
    const auto announcer = sources_.announcer(card.name);
    model->router->announce_to(announcer);
    model->prefill->prefill().announce_to(announcer);
  }
  if (sources_.advisor != nullptr) {
    model->router->advise_by(sources_.advisor);
  }
  copy_facts(card, *model);
  model->created_s = unix_seconds(clock_.wall_now());
  STATOR_TRY(model->parsers, find_parsers(sources_, card, *model->assets));
  tokenizer::PreTokenCache::drop_this_thread();  // the parsers' markers were encoded
  if (!card.checksum.empty() && card.checksum != model->assets->checksum) {
    return Error(Code::kCorrupt,
                 "the files in '" + dir +
                     "' differ from those the worker loaded; give both the same folder");
  }
  if (sources_.restore_index) {
    sources_.restore_index(*model);
  }
  return model;
}

Status ModelCatalog::preload(const discovery::ModelCard& card) {
  STATOR_TRY(auto model, make_model(card), "loading model '" + card.name + "'");
  const MutexLock lock(mutex_);
  models_.emplace(card.name, std::move(model));
  return {};
}

void ModelCatalog::add_worker(const discovery::InstanceRecord& record) {
  {
    const MutexLock lock(mutex_);
    const auto model = models_.find(record.model.name);
    if (model != models_.end()) {
      enroll(record, model->second);
      return;
    }
    to_load_.push_back(record);
    early_[record.key.worker] = {};
  }
  wake_.notify_all();
}

void ModelCatalog::enroll(const discovery::InstanceRecord& record,
                          const std::shared_ptr<ServedModel>& model) {
  const discovery::ModelCard& card = record.model;
  Early early;
  if (const auto known = early_.find(record.key.worker); known != early_.end()) {
    early = std::move(known->second);
    early_.erase(known);
  }
  if ((!card.checksum.empty() && card.checksum != model->assets->checksum) ||
      card.block_size != model->block_size) {
    mismatches_.add();
    log::error("frontend", "worker kept out of rotation: its model files or block size differ",
               {{"worker", record.key.worker.value()}, {"model", card.name}});
    return;
  }
  if (places_.size() >= kPlacesMax + workers_.size()) {
    absl::erase_if(places_, [&](const auto& entry) STATOR_REQUIRES(mutex_) {
      return !workers_.contains(entry.first);
    });
  }
  places_[record.key.worker] = record.address;
  Enrolled& enrolled = workers_[record.key.worker];
  const bool is_new = enrolled.model == nullptr;
  const Standing before = enrolled.standing;
  const std::vector<std::string> adapters_before = std::move(enrolled.adapters);
  if (!is_new) {
    count(enrolled, -1);
    enrolled.adapters = adapters_before;
    count_adapters(enrolled, -1);
    count_aliases(enrolled, -1);
  }
  enrolled = {.model = model,
              .ability = card.handoff,
              .adapters = card.adapters,
              .aliases = card.aliases,
              .space = record.key.namespace_name};
  enrolled.standing =
      record.state == discovery::InstanceState::kReady ? Standing::kReady : Standing::kEngineLost;
  if (is_new) {
    log_change("worker joined", record.key.worker, enrolled);
  } else if (before != enrolled.standing) {
    log_change("worker takes work again", record.key.worker, enrolled);
  }
  count(enrolled, 1);
  count_adapters(enrolled, 1);
  count_aliases(enrolled, 1);
  show_adapters(adapters_before, enrolled.adapters);
  router::WorkerFacts facts{.total_kv_blocks = card.total_kv_blocks,
                            .max_num_batched_tokens = card.max_num_batched_tokens,
                            .accelerated = card.engine_kind != "cpu",
                            .kv_events = card.kv_events && router_config_.use_kv_events,
                            .dp_size = std::clamp(card.dp_size, 1U, kDpRanksMax),
                            .taints = taints_of(card)};
  if (card.handoff.role == inference::WorkerRole::kPrefill) {
    model->prefill->add_worker(key_of(record.key.worker), std::move(facts));
  } else {
    model->router->add_worker(key_of(record.key.worker), std::move(facts));
  }
  if (record.state != discovery::InstanceState::kReady) {  // its engine does not answer yet
    enrolled.router().set_draining(key_of(record.key.worker), true);
  }
  // Under the lock, so that what comes now cannot overtake it.
  enrolled.router().index().apply(record.key.worker, early.events);
}

void ModelCatalog::log_change(std::string_view what, WorkerId worker, const Enrolled& enrolled) {
  const auto held_back = log_budget_.take(clock_.now());
  if (!held_back) {
    return;
  }
  log::info("frontend", what,
            {{"worker", worker.value()},
             {"url", places_[worker]},
             {"model", enrolled.model->name},
             {"role", to_string(enrolled.ability.role)},
             {"workers", workers_.size()},
             {"lines_held_back", *held_back}});
}

std::optional<ModelCatalog::Enrolled> ModelCatalog::set_standing(WorkerId worker, Standing standing,
                                                                 std::string_view what) {
  const MutexLock lock(mutex_);
  const auto known = workers_.find(worker);
  if (known == workers_.end()) {
    return std::nullopt;
  }
  if (std::exchange(known->second.standing, standing) != standing) {
    log_change(what, worker, known->second);
  }
  return known->second;
}

void ModelCatalog::set_draining(WorkerId worker) {
  if (const auto known =
          set_standing(worker, Standing::kDraining, "worker drains: it gets nothing new")) {
    known->router().set_draining(key_of(worker), true);
  }
}

void ModelCatalog::set_engine_lost(WorkerId worker) {
  if (const auto known = set_standing(worker, Standing::kEngineLost,
                                      "worker gets nothing new: its engine does not answer")) {
    known->router().set_draining(key_of(worker), true);
  }
}

void ModelCatalog::set_suspended(WorkerId worker, bool suspended) {
  {
    const MutexLock lock(mutex_);
    const auto found = workers_.find(worker);
    if (found != workers_.end()) {
      found->second.suspended = suspended;
    }
  }
  if (const auto known = find_worker(worker)) {
    known->router().set_draining(key_of(worker), suspended);
  }
}

void ModelCatalog::remove_worker(WorkerId worker) {
  Enrolled gone;
  {
    const MutexLock lock(mutex_);
    std::erase_if(to_load_, [&](const auto& record) { return record.key.worker == worker; });
    early_.erase(worker);
    const auto known = workers_.find(worker);
    if (known == workers_.end()) {
      return;
    }
    gone = std::move(known->second);
    workers_.erase(known);
    log_change("worker left", worker, gone);
    count(gone, -1);
    count_adapters(gone, -1);
    count_aliases(gone, -1);
    show_adapters(gone.adapters, {});
  }
  if (gone.ability.role == inference::WorkerRole::kPrefill) {
    gone.model->prefill->remove_worker(key_of(worker));
  } else {
    gone.model->router->remove_worker(key_of(worker));
  }
}

std::shared_ptr<ServedModel> ModelCatalog::find(std::string_view name) const {
  const MutexLock lock(mutex_);
  const auto model = models_.find(name);
  return model == models_.end() ? nullptr : model->second;
}

NamedModel ModelCatalog::resolve(std::string_view name) const {
  const MutexLock lock(mutex_);
  if (const auto model = models_.find(name); model != models_.end()) {
    return {model->second, {}};
  }
  if (const auto alias = aliases_.find(name); alias != aliases_.end()) {
    return {alias->second.model, {}};
  }
  const auto adapter = adapters_.find(name);
  return adapter == adapters_.end() ? NamedModel() : adapter->second.named;
}

std::vector<NamedModel> ModelCatalog::list_adapters() const {
  std::vector<NamedModel> all;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, adapter] : adapters_) {
      if (key == adapter.named.adapter && !models_.contains(key)) {
        all.push_back(adapter.named);
      }
    }
  }
  std::ranges::sort(all, {}, &NamedModel::adapter);
  return all;
}

std::vector<std::pair<std::string, std::shared_ptr<ServedModel>>> ModelCatalog::list_aliases()
    const {
  std::vector<std::pair<std::string, std::shared_ptr<ServedModel>>> all;
  {
    const MutexLock lock(mutex_);
    for (const auto& [name, alias] : aliases_) {
      if (!models_.contains(name) && alias.model->ready()) {
        all.emplace_back(name, alias.model);
      }
    }
  }
  std::ranges::sort(all, {}, [](const auto& entry) { return entry.first; });
  return all;
}

std::vector<std::shared_ptr<ServedModel>> ModelCatalog::list_all() const {
  std::vector<std::shared_ptr<ServedModel>> all;
  const MutexLock lock(mutex_);
  for (const auto& [name, model] : models_) {
    all.push_back(model);
  }
  std::ranges::sort(all, {}, [](const auto& model) { return model->name; });
  return all;
}

std::vector<std::shared_ptr<ServedModel>> ModelCatalog::list_ready() const {
  auto ready = list_all();
  std::erase_if(ready, [](const auto& model) { return !model->ready(); });
  return ready;
}

bool ModelCatalog::takes_work() const {
  return std::ranges::any_of(list_ready(),
                             [](const auto& model) { return model->router->takes_work(); });
}

std::vector<ModelCatalog::Instance> ModelCatalog::instances() const {
  std::vector<Instance> all;
  const MutexLock lock(mutex_);
  for (const auto& [worker, enrolled] : workers_) {
    const auto place = places_.find(worker);
    const bool held = enrolled.suspended && enrolled.standing == Standing::kReady;
    all.push_back({.model = enrolled.model->name,
                   .worker = worker,
                   .place = place == places_.end() ? std::string() : place->second,
                   .space = enrolled.space,
                   .role = enrolled.ability.role,
                   .runs_whole = enrolled.ability.runs_whole,
                   .standing = held ? Standing::kSuspended : enrolled.standing});
  }
  std::ranges::sort(all, {}, &Instance::worker);
  return all;
}

std::string ModelCatalog::place_of(WorkerId worker) const {
  const MutexLock lock(mutex_);
  const auto place = places_.find(worker);
  return place == places_.end() ? std::string() : place->second;
}

std::optional<router::LoadLease> ModelCatalog::book_for_replica(
    const router::ReplicaBooking& booking) const {
  const auto known = find_worker(booking.worker.worker);
  return known && known->model->name == booking.model ? known->router().book_for_replica(booking)
                                                      : std::nullopt;
}

int64_t ModelCatalog::active_requests() const {
  int64_t total = 0;
  const MutexLock lock(mutex_);
  for (const auto& [name, model] : models_) {
    total += model->router->active_requests() + model->prefill->prefill().active_requests();
  }
  return total;
}

size_t ModelCatalog::waiting_requests() const {
  size_t total = 0;
  for (const auto& model : list_all()) {
    total += model->router->waiting() + model->prefill->prefill().waiting();
  }
  return total;
}

void ModelCatalog::tick() {
  for (const auto& model : list_all()) {
    model->router->tick();  // these cost nothing while nobody waits
    model->prefill->prefill().tick();
  }
}

std::optional<ModelCatalog::Enrolled> ModelCatalog::find_worker(WorkerId worker) const {
  const MutexLock lock(mutex_);
  const auto known = workers_.find(worker);
  return known == workers_.end() ? std::nullopt : std::optional(known->second);
}

std::shared_ptr<IndexService> ModelCatalog::take_in(WorkerId worker,
                                                    std::vector<kv::KvEvent>& events) {
  const MutexLock lock(mutex_);
  if (const auto known = workers_.find(worker); known != workers_.end()) {
    return {known->second.model, &known->second.router().index()};
  }
  const auto waiting = early_.find(worker);
  if (waiting == early_.end()) {
    return nullptr;
  }
  Early& early = waiting->second;
  for (kv::KvEvent& event : events) {
    const bool starts_over = event.dp_rank == IndexService::kAllRanks &&
                             std::holds_alternative<kv::AllCleared>(event.data);
    early.blocks = starts_over ? 0 : early.blocks + IndexService::block_count(event);
    if (starts_over || early.blocks > kEarlyBlocksMax) {
      early.events.clear();
    }
    early.events.push_back(std::move(event));
  }
  return nullptr;
}

void ModelCatalog::on_snapshot(WorkerId worker, std::vector<kv::KvEvent> blocks) {
  std::vector<kv::KvEvent> events;
  events.reserve(blocks.size() + 1);
  events.push_back({.dp_rank = IndexService::kAllRanks, .data = kv::AllCleared{}});
  std::ranges::move(blocks, std::back_inserter(events));
  on_events(worker, std::move(events));
}

void ModelCatalog::on_events(WorkerId worker, std::vector<kv::KvEvent> events) {
  if (!router_config_.use_kv_events) {
    return;
  }
  if (const auto index = take_in(worker, events)) {
    index->apply(worker, events);
  }
}

void ModelCatalog::load_loop() {
  // Served already; what few texts need is made when nothing is left to load.
  std::vector<std::shared_ptr<ServedModel>> to_finish;
  while (true) {
    std::optional<discovery::InstanceRecord> next;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && to_load_.empty() && to_finish.empty()) {
        wake_.wait(lock);
      }
      if (stopping_) {
        return;
      }
      if (!to_load_.empty()) {
        next = std::move(to_load_.front());
        to_load_.pop_front();
      }
    }
    if (!next) {
      tokenizer::prepare_long_words(*to_finish.back()->assets->tokenizer);
      to_finish.pop_back();
      continue;
    }
    const discovery::InstanceRecord& record = *next;
    const bool known = find(record.model.name) != nullptr;
    Status loaded;
    if (!known) {
      loaded = preload(record.model);
    }
    if (!loaded) {
      load_failures_.add();
      log::error("frontend", loaded.error().message(),
                 {{"worker", record.key.worker.value()}, {"model_path", record.model.model_path}});
      const MutexLock lock(mutex_);
      early_.erase(record.key.worker);
      continue;
    }
    const MutexLock lock(mutex_);
    const auto& model = models_.at(record.model.name);
    if (!known) {
      to_finish.push_back(model);
    }
    enroll(record, model);
  }
}

}  // namespace stator::frontend
