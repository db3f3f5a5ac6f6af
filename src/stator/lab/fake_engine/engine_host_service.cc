// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/engine_host_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/core/random.h"
#include "stator/engine/core/engine_service.h"
#include "stator/engine/sim/sim_runner.h"
#include "stator/kv/event_log.h"

namespace stator::fake_engine {
namespace {

constexpr size_t kEventsPerRead = 4'096;
/// Blocks remembered beyond four pools: prompts that wait.
constexpr size_t kWaitingBlocks = size_t{64} << 10;

}  // namespace

struct EngineHost::Job {
  GenerateSpec spec;
  JobObserver* observer = nullptr;
  uint32_t rank = 0;
  uint32_t open = 0;  // choices not finished
  struct Choice {
    ChoiceStream stream;
    SequenceTrace trace;
    inference::RequestKey key;
  };
  std::vector<Choice> choices;
};

/// One engine with its session; hands what comes on the engine's thread to the loop.
class EngineHost::Rank final : public engine::EngineSink, public kv::EventLogListener {
 public:
  Rank(EngineHost& host, uint32_t index, size_t blocks_max)
      : host_(host), index_(index), book_(host.config_.engine.block_size, blocks_max) {}

  void on_step(inference::StepOutput output) noexcept override {
    const bool posted = host_.shard_.post(
        [this, output = std::move(output)]() mutable { host_.on_step(index_, output); });
    static_cast<void>(posted);  // false only while the shard stops: nobody reads any more
  }

  /// Each event is read behind the tokens it is about: those were posted before it was appended.
  void on_events_available() noexcept override {
    const uint64_t last = engine_->events().last_id();
    const bool posted = host_.shard_.post([this, last] { host_.drain_events(index_, last); });
    static_cast<void>(posted);
  }

  EngineHost& host_;
  const uint32_t index_;
  PublishedBlocks book_;
  std::unique_ptr<engine::Engine> engine_;
  engine::SessionId session_{0};
  uint64_t next_event_ = 1;
};

EngineHost::EngineHost(const FakeConfig& config, const FakeModel& model, net::Shard& shard)
    : config_(config), model_(model), shard_(shard) {}

EngineHost::~EngineHost() {
  stop();
}

Result<std::unique_ptr<EngineHost>> EngineHost::create(const FakeConfig& config,
                                                       const FakeModel& model, net::Shard& shard,
                                                       Metrics& metrics) {
  auto host = std::unique_ptr<EngineHost>(new EngineHost(config, model, shard));
  for (uint32_t rank = 0; rank < config.dp_size; ++rank) {
    STATOR_CHECK(host->add_rank(rank, metrics));
  }
  return host;
}

Status EngineHost::add_rank(uint32_t index, Metrics& metrics) {
  const size_t blocks_max = size_t{4} * config_.engine.total_blocks + kWaitingBlocks;
  auto rank = std::make_unique<Rank>(*this, index, blocks_max);
  STATOR_TRY(auto runner, engine::make_sim_runner({.vocab_size = model_.vocab_size,
                                                   .max_model_len = model_.max_model_len,
                                                   .block_size = config_.engine.block_size,
                                                   .seed = config_.seed,
                                                   .first_token = model_.first_token,
                                                   .last_token = model_.last_token,
                                                   .timing = config_.timing,
                                                   .speedup = config_.speedup,
                                                   .decode_speedup = config_.decode_speedup,
                                                   .host_link = config_.host_link,
                                                   .draft_acceptance = config_.draft_acceptance,
                                                   .replies = {},
                                                   .token_bytes = {}}));
  engine::EngineConfig config = config_.engine;
  config.name = fmt::format("rank{}", index);
  config.dp_rank = index;
  config.supports_lora = true;
  STATOR_TRY(rank->engine_,
             engine::make_engine(config, std::move(runner), shard_.clock(), metrics));
  ranks_.push_back(std::move(rank));
  return {};
}

Status EngineHost::start() {
  for (const auto& rank : ranks_) {
    STATOR_CHECK(rank->engine_->start());
    rank->session_ = rank->engine_->open_session(*rank);
    STATOR_CHECK(rank->engine_->events().subscribe(1, rank.get()));
  }
  return {};
}

void EngineHost::stop() {
  jobs_.clear();
  places_.clear();
  for (const auto& rank : ranks_) {
    if (rank->session_ != engine::SessionId(0)) {
      rank->engine_->events().unsubscribe(rank.get());
      rank->engine_->close_session(std::exchange(rank->session_, engine::SessionId(0)));
    }
    rank->engine_->stop();
  }
}

uint32_t EngineHost::least_loaded() const {
  uint32_t best = 0;
  uint32_t best_load = UINT32_MAX;
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    const auto report = load(rank);
    if (report.running + report.waiting < best_load) {
      best = rank;
      best_load = report.running + report.waiting;
    }
  }
  return best;
}

Result<EngineHost::JobId> EngineHost::submit(GenerateSpec spec, JobObserver& observer) {
  const JobId id = next_id_++;
  auto job = std::make_unique<Job>();
  job->spec = std::move(spec);
  job->observer = &observer;
  job->rank = job->spec.dp_rank.value_or(least_loaded());
  const auto count = static_cast<uint32_t>(job->spec.prompts.size()) * job->spec.n;
  for (uint32_t i = 0; i < count; ++i) {
    job->choices.push_back({.stream = ChoiceStream(model_, job->spec, i),
                            .trace = SequenceTrace(config_.engine.block_size, job->spec.owner),
                            .key = {.request = RequestId(next_id_++), .attempt = Attempt(0)}});
  }
  job->open = count;
  Job& placed = *job;
  jobs_.emplace(id, std::move(job));
  for (uint32_t i = 0; i < count; ++i) {
    Status submitted = submit_choice(id, placed, i);
    if (!submitted) {
      cancel(id);
      return std::move(submitted.error());
    }
  }
  return id;
}

Status EngineHost::submit_choice(JobId id, Job& job, uint32_t index) {
  auto& choice = job.choices[index];
  Rank& rank = *ranks_[job.rank];
  const auto& prompt = job.spec.prompts[index / job.spec.n];
  inference::EngineRequest request{.key = choice.key,
                                   .tokens = prompt,
                                   .sampling = job.spec.sampling,
                                   .stop = job.spec.stop,
                                   .priority = job.spec.priority,
                                   .cache_salt = job.spec.owner.cache_salt,
                                   .lora_name = job.spec.owner.lora_name,
                                   .structured_outputs = {}};
  if (job.spec.script) {
    request.stop.eos_token_ids.clear();  // the script says when it ends
    request.stop.stop_token_ids.clear();
  }
  const uint32_t sibling = index % job.spec.n;
  // The simulated engine has no such filters: ChoiceStream applies them to what it writes.
  request.sampling.allowed_token_ids.clear();
  request.sampling.bad_words.clear();
  if (job.spec.altered != 0 || (sibling > 0 && !request.sampling.greedy())) {
    const auto base = static_cast<uint64_t>(request.sampling.seed.value_or(0));
    request.sampling.temperature = 1.0F;  // the simulated model only heeds seeds when not greedy
    request.sampling.seed = static_cast<int64_t>((base + sibling) ^ job.spec.altered);
  }
  rank.book_.append(choice.trace, prompt);
  places_.emplace(choice.key.request, Place{.job = id, .choice = index});
  return rank.engine_->submit(rank.session_, std::move(request));
}

void EngineHost::cancel(JobId id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) {
    return;
  }
  Rank& rank = *ranks_[found->second->rank];
  for (const auto& choice : found->second->choices) {
    if (places_.erase(choice.key.request) > 0) {
      rank.engine_->cancel(rank.session_, choice.key);
    }
  }
  jobs_.erase(found);
}

void EngineHost::cancel_all() {
  std::vector<JobId> ids;
  for (const auto& [id, job] : jobs_) {
    ids.push_back(id);
  }
  for (const JobId id : ids) {
    const auto found = jobs_.find(id);
    if (found != jobs_.end()) {
      JobObserver& observer = *found->second->observer;
      cancel(id);
      observer.on_failure(Error(Code::kCancelled, "aborted"));
    }
  }
}

void EngineHost::on_step(uint32_t rank, inference::StepOutput& output) {
  for (const inference::Delta& delta : output.deltas) {
    on_output(rank, output, delta);
  }
  for (const inference::Failure& failure : output.failures) {
    on_failed(failure);
  }
}

void EngineHost::on_output(uint32_t rank_index, const inference::StepOutput& output,
                           const inference::Delta& delta) {
  const auto place = places_.find(delta.key.request);
  if (place == places_.end()) {
    return;  // cancelled while it was on its way
  }
  const Place at = place->second;
  Rank& rank = *ranks_[rank_index];
  Job& job = *jobs_.at(at.job);
  auto& choice = job.choices[at.choice];
  const auto tokens = output.tokens_of(delta);
  rank.book_.append(choice.trace, tokens);
  if (job.spec.announce_hits && delta.cached_tokens > 0 && outlet_ != nullptr) {
    const uint32_t blocks = delta.cached_tokens / config_.engine.block_size;
    if (auto hit = rank.book_.describe(choice.trace, blocks)) {
      outlet_->on_events({.unix_seconds = 0, .events = {std::move(*hit)}, .dp_rank = rank_index});
    }
  }
  auto news = choice.stream.feed({.tokens = tokens,
                                  .logprobs = output.logprobs_of(delta),
                                  .finish = delta.finish,
                                  .stopped_by_token = delta.stopped_by_token,
                                  .cached_tokens = delta.cached_tokens});
  JobObserver& observer = *job.observer;
  if (choice.stream.finished()) {
    places_.erase(delta.key.request);
    if (delta.finish == inference::FinishReason::kNone) {
      rank.engine_->cancel(rank.session_, delta.key);
    }
    if (--job.open == 0) {
      const auto keep = std::move(jobs_.at(at.job));
      jobs_.erase(at.job);
      if (news) {
        observer.on_delta(std::move(*news));
      }
      return;
    }
  }
  if (news) {
    observer.on_delta(std::move(*news));
  }
}

void EngineHost::on_failed(const inference::Failure& failure) {
  const auto place = places_.find(failure.key.request);
  if (place == places_.end()) {
    return;
  }
  const JobId id = place->second.job;
  JobObserver& observer = *jobs_.at(id)->observer;
  cancel(id);
  observer.on_failure(failure.error);
}

void EngineHost::drain_events(uint32_t index, uint64_t last) {
  Rank& rank = *ranks_[index];
  while (rank.next_event_ <= last) {
    const size_t wanted = std::min<uint64_t>(kEventsPerRead, last - rank.next_event_ + 1);
    auto read = rank.engine_->events().read_from(rank.next_event_, wanted);
    if (const auto* gap = std::get_if<kv::EventLog::Gap>(&read)) {
      rank.next_event_ = gap->last_id + 1;  // real engines lose events silently, too
      return;
    }
    const auto& events = std::get<std::vector<kv::KvEvent>>(read);
    if (events.empty()) {
      return;
    }
    rank.next_event_ = events.back().event_id + 1;
    auto wire = rank.book_.translate(events);
    if (outlet_ != nullptr && !wire.empty()) {
      outlet_->on_events({.unix_seconds = 0, .events = std::move(wire), .dp_rank = index});
    }
  }
}

engine::LoadReport EngineHost::load(uint32_t rank) const {
  return ranks_[rank]->engine_->load();
}

const engine::EngineInfo& EngineHost::info() const {
  return ranks_.front()->engine_->info();
}

void EngineHost::reset_cache() {
  for (const auto& rank : ranks_) {
    rank->engine_->reset_prefix_cache();
  }
}

uint64_t EngineHost::unknown_blocks() const {
  uint64_t total = 0;
  for (const auto& rank : ranks_) {
    total += rank->book_.unknown_blocks();
  }
  return total;
}

}  // namespace stator::fake_engine
