// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/generation.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "stator/api/response_body.h"
#include "stator/blocks/block_hash.h"
#include "stator/frontend/logprob_views.h"

namespace stator::frontend {
namespace {

constexpr Duration kWorkerDeadlineMargin = std::chrono::milliseconds(500);

double milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

/// Of every choice of every prompt. Views into the plan.
std::vector<ChoiceRun::Spec> choices_of(const GenerationPlan& plan) {
  const size_t count = plan.prompts.size() * plan.choices_per_prompt;
  std::vector<ChoiceRun::Spec> specs;
  specs.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t prompt = i / plan.choices_per_prompt;
    specs.push_back(
        {.index = i,
         .prompt = prompt,
         .max_tokens = plan.stop[prompt].max_tokens,
         .scores_prompt = plan.prompt_logprobs,
         .dry_run = plan.dry_run,
         .journal = {.prompt_tokens = static_cast<uint32_t>(plan.prompts[prompt].size()),
                     .stop = &plan.stop[prompt],
                     .replay = plan.replay(),
                     .limits = plan.migration}});
  }
  return specs;
}

// Later than the shard's own timer, whose answer names the setting to change.
uint32_t worker_deadline_ms(Duration left) {
  return static_cast<uint32_t>(std::clamp<int64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(left + kWorkerDeadlineMargin).count(),
      1, UINT32_MAX));
}

// Choices of one prompt must differ, and do so reproducibly.
inference::SamplingParams sampling_of(const GenerationPlan& plan, uint32_t choice) {
  inference::SamplingParams sampling = plan.sampling;
  if (sampling.seed) {
    sampling.seed = static_cast<int64_t>(static_cast<uint64_t>(*sampling.seed) +
                                         choice % plan.choices_per_prompt);
  }
  return sampling;
}

}  // namespace

continuity::Replay GenerationPlan::replay() const {
  if (routing.pinned) {
    return continuity::Replay::kNever;
  }
  if (media != nullptr) {
    return continuity::Replay::kBeforeFirstToken;  // engines render such prompts
                                                   // themselves
  }
  return structured_outputs.empty() || model->structured_replay
             ? continuity::Replay::kAlways
             : continuity::Replay::kBeforeFirstToken;
}

void GenerationPlan::ignore_thinking_budget() {
  thinking.reset();
  answer.ignored_fields += answer.ignored_fields.empty() ? "" : ",";
  answer.ignored_fields += "max_thinking_tokens";
}

Generation::Generation(GenerationPlan&& plan, net::HttpExchange& exchange, TimePoint received,
                       net::ByteBudget* answers)
    : plan_(std::move(plan)),
      answer_(Answer::make(plan_.answer, exchange, *plan_.model->assets->tokenizer, answers)),
      run_(choices_of(plan_)),
      received_(received),
      last_activity_(received),
      last_sent_(received) {
  const OutputPipeline::Parts parts{.tokenizer = *plan_.model->assets->tokenizer,
                                    .stops = plan_.stop_strings.get(),
                                    .format = plan_.format.get(),
                                    .options = plan_.decode};
  texts_.reserve(choices().size());
  for (const ChoiceRun& choice : choices()) {
    texts_.push_back({.pipeline = OutputPipeline(parts, choice.facts().index)});
  }
  for (const auto& prompt : plan_.prompts) {
    usage_.prompt_tokens += static_cast<uint32_t>(prompt.size());
  }
}

request::PromptView Generation::view_prompt(const ChoiceRun& choice) const {
  return request::PromptView({.prompt = plan_.prompts[choice.facts().prompt],
                              .sequences = plan_.sequences[choice.facts().prompt],
                              .output = choice.journal().output(),
                              .block_size = plan_.model->block_size,
                              .seed = plan_.hash_seed()});
}

inference::EngineRequest Generation::make_engine_request(const ChoiceRun& choice,
                                                         TimePoint now) const {
  inference::EngineRequest request;
  request.key = choice.key();
  const std::vector<TokenId>& prompt = plan_.prompts[choice.facts().prompt];
  const std::span<const TokenId> output = choice.journal().output();
  request.tokens.reserve(prompt.size() + output.size());
  request.tokens = prompt;
  request.tokens.insert(request.tokens.end(), output.begin(), output.end());
  request.generated = choice.journal().generated();
  request.dp_rank = choice.facts().worker.dp_rank;
  if (plan_.timeout) {
    request.deadline_ms = worker_deadline_ms(received_ + *plan_.timeout - now);
  }
  request.sampling = sampling_of(plan_, choice.facts().index);
  request.stop = plan_.stop[choice.facts().prompt];
  request.priority = plan_.priority;
  request.cache_salt = plan_.cache_salt;
  request.lora_name = plan_.adapter;
  request.structured_outputs = plan_.structured_outputs;
  request.require_reasoning = plan_.require_reasoning;
  request.media = plan_.media;
  request.prompt_logprobs = scores_prompt(choice);
  request.context = plan_.context;
  return request;
}

/// Whether the current attempt of the choice has to tell the prompt's
/// log-probabilities.
bool Generation::scores_prompt(const ChoiceRun& choice) const {
  const bool shown = plan_.echo_logprobs || choice.facts().index % plan_.choices_per_prompt == 0;
  return plan_.prompt_logprobs && shown && choice.journal().generated() == 0;
}

/// Of the prompt, which every first choice of one has; a prompt's own answer
/// may take long.
void Generation::show_prompt_logprobs(const ChoiceRun& choice,
                                      const inference::StepOutput& output) {
  if (!plan_.prompt_alternatives || choice.facts().index % plan_.choices_per_prompt != 0) {
    return;
  }
  uint32_t offset = 0;
  const LogprobViews views(*plan_.model->assets->tokenizer, output.prompt_of(choice.key()), offset);
  std::string json;
  api::append_prompt_logprobs(json, views.entries(), *plan_.prompt_alternatives);
  if (plan_.want_prompt_logprobs && choice.facts().prompt == 0) {
    prompt_logprobs_json_ = json;
  }
  answer_->add_prompt_logprobs(choice.facts().prompt, std::move(json));
}

/// Adds up what choices are compared by, and leaves what the client asked for.
std::span<const inference::TokenLogprobs> Generation::weigh_logprobs(
    ChoiceRun& choice, std::span<const inference::TokenLogprobs> logprobs) {
  if (plan_.best_choices > 0) {
    for (const inference::TokenLogprobs& entry : logprobs) {
      text_of(choice).logprob_sum += entry.sampled.logprob;
    }
    text_of(choice).logprob_count += static_cast<uint32_t>(logprobs.size());
  }
  if (!plan_.shown_alternatives || logprobs.empty()) {
    return logprobs;
  }
  shown_logprobs_.assign(logprobs.begin(), logprobs.end());
  for (inference::TokenLogprobs& entry : shown_logprobs_) {
    entry.top.resize(std::min<size_t>(entry.top.size(), *plan_.shown_alternatives));
  }
  return shown_logprobs_;
}

/// By mean log-probability per token; of equal ones the earlier.
void Generation::choose_best() {
  if (plan_.best_choices == 0) {
    return;
  }
  const auto mean = [this](uint32_t index) {
    const ChoiceText& text = texts_[index];
    return text.logprob_sum / std::max(1U, text.logprob_count);
  };
  std::vector<uint32_t> kept;
  std::vector<uint32_t> candidates(plan_.choices_per_prompt);
  for (uint32_t prompt = 0; prompt < plan_.prompts.size(); ++prompt) {
    std::iota(candidates.begin(), candidates.end(), prompt * plan_.choices_per_prompt);
    std::ranges::sort(candidates, {},
                      [&](uint32_t index) { return std::pair(-mean(index), index); });
    kept.insert(kept.end(), candidates.begin(), candidates.begin() + plan_.best_choices);
  }
  plan_.best_choices = 0;  // once
  answer_->keep(kept);
}

void Generation::send_echo(const ChoiceRun& choice, const inference::StepOutput& output) {
  if (plan_.echo.empty()) {
    return;
  }
  std::vector<inference::TokenLogprobs> logprobs;
  if (plan_.echo_logprobs) {
    logprobs.push_back({.sampled = {.token = plan_.prompts[choice.facts().prompt].front(),
                                    .logprob = std::numeric_limits<float>::quiet_NaN()},
                        .top = {}});
    const auto scored = output.prompt_of(choice.key());
    logprobs.insert(logprobs.end(), scored.begin(), scored.end());
    if (plan_.shown_alternatives) {
      for (inference::TokenLogprobs& entry : logprobs) {
        entry.top.resize(std::min<size_t>(entry.top.size(), *plan_.shown_alternatives));
      }
    }
  }
  send({.choice = choice.facts().index,
        .text = plan_.echo[choice.facts().prompt],
        .logprobs = logprobs});
}

/// Whether pieces carry the running totals.
bool Generation::shows_usage() const {
  return plan_.answer.options.continuous_usage_stats || plan_.answer.protocol != nullptr;
}

void Generation::send(const AnswerPiece& piece) {
  if (answer_->add(piece)) {
    last_sent_ = last_activity_;
  }
}

/// One chunk per event, so that the order of the output is the order of the
/// chunks; naive clients look at the first entry of `tool_calls` only. `piece`
/// has what belongs to the batch as a whole.
void Generation::send_events(const parsers::EventList& events, AnswerPiece piece) {
  const api::ChoiceFinish finish = std::exchange(piece.finish, api::ChoiceFinish::kNone);
  bool sent = false;
  for (const parsers::Event& event : events.all()) {
    piece.text = {};
    piece.reasoning = {};
    piece.call = nullptr;
    api::ToolCallDelta call{.index = event.call_index};
    switch (event.kind) {
      case parsers::EventKind::kText:
        piece.text = events.bytes(event);
        break;
      case parsers::EventKind::kReasoning:
        if (plan_.hides_reasoning) {
          continue;
        }
        piece.reasoning = events.bytes(event);
        break;
      case parsers::EventKind::kCallBegin:
        call.id = events.call_id(event);
        call.name = events.name(event);
        piece.call = &call;
        ++counts_.tool_calls;
        break;
      case parsers::EventKind::kCallArguments:
        call.arguments = events.bytes(event);
        piece.call = &call;
        break;
      case parsers::EventKind::kCallEnd:
        continue;
      case parsers::EventKind::kRecovered:
        ++counts_.recoveries[static_cast<size_t>(event.recovery)];
        continue;
    }
    send(piece);
    piece.logprobs = {};
    piece.nvext_json = {};
    piece.tokens = {};
    sent = true;
  }
  if (!sent || finish != api::ChoiceFinish::kNone) {
    send({.choice = piece.choice,
          .nvext_json = piece.nvext_json,
          .finish = finish,
          .logprobs = piece.logprobs,
          .tokens = piece.tokens,
          .usage = piece.usage,
          .stop_string = piece.stop_string});
  }
}

/// Nothing: no budget ends what the choice is writing now.
std::optional<uint32_t> Generation::thinking_left(const ChoiceRun& choice) const {
  if (!plan_.thinking || text_of(choice).thought_enough ||
      !text_of(choice).pipeline.is_reasoning()) {
    return std::nullopt;
  }
  return plan_.thinking->tokens -
         std::min(plan_.thinking->tokens, text_of(choice).reasoning_tokens);
}

Progress Generation::on_delta(ChoiceRun& choice, const inference::Delta& delta,
                              const inference::StepOutput& output, TimePoint now) {
  const auto left = thinking_left(choice);
  if (!left || delta.token_count <= *left || delta.key != choice.key()) {
    const Progress progress = take_delta(choice, delta, output, now);
    const bool enough = progress == Progress::kRunning && thinking_left(choice) == 0U;
    return enough ? Progress::kThoughtEnough : progress;
  }
  // The budget ends within the delta: what comes after it is only taken if the
  // reasoning ends, too.
  inference::Delta first = delta;
  first.token_count = *left;
  first.finish = inference::FinishReason::kNone;
  first.stopped_by_token = false;
  if (*left > 0) {
    const Progress progress = take_delta(choice, first, output, now);
    if (progress != Progress::kRunning) {
      return progress;
    }
  }
  if (thinking_left(choice)) {
    return Progress::kThoughtEnough;
  }
  inference::Delta rest = delta;
  rest.offset += *left;
  rest.token_begin += *left;
  rest.token_count -= *left;
  return take_delta(choice, rest, output, now);
}

continuity::Journal::Step Generation::end_thinking(ChoiceRun& choice, TimePoint now) {
  text_of(choice).thought_enough = true;
  const continuity::Journal::Step step = choice.journal().interject(plan_.thinking->close);
  if (step == continuity::Journal::Step::kResubmit) {
    last_activity_ = now;
    write_output(choice, plan_.thinking->close, {}, {.key = choice.key()});
  }
  return step;
}

Progress Generation::take_delta(ChoiceRun& choice, const inference::Delta& delta,
                                const inference::StepOutput& output, TimePoint now) {
  using Verdict = continuity::Journal::Verdict;
  const bool fresh = choice.journal().attempt_is_fresh();
  if (scores_prompt(choice) && delta.key == choice.key() && delta.token_count > 0 &&
      output.prompt_of(delta.key).size() + 1 != plan_.prompts[choice.facts().prompt].size()) {
    return Progress::kBroken;
  }
  const auto [verdict, skip] =
      choice.journal().take(delta.key.attempt, delta.offset, output.tokens_of(delta));
  if (verdict != Verdict::kAccepted) {
    return verdict == Verdict::kStale ? Progress::kStale : Progress::kBroken;
  }
  last_activity_ = now;
  const auto tokens = output.tokens_of(delta).subspan(skip);
  if (fresh && !tokens.empty() && choice.journal().generated() == tokens.size()) {
    start_output(choice, delta, output, now);
  }
  // Some engines know it only at the end.
  if (delta.cached_tokens > 0 && text_of(choice).cached_tokens == 0) {
    text_of(choice).cached_tokens = delta.cached_tokens;
    usage_.cached_tokens +=
        choice.facts().index % plan_.choices_per_prompt == 0 ? delta.cached_tokens : 0;
  }
  if (plan_.writes_nothing && choice.journal().generated() > 0) {
    finish_choice(choice, inference::FinishReason::kLength, now);
    return delta.finish == inference::FinishReason::kNone ? Progress::kChoiceDoneCancelEngine
                                                          : Progress::kChoiceDone;
  }
  auto logprobs = output.logprobs_of(delta);
  logprobs = logprobs.subspan(std::min<size_t>(skip, logprobs.size()));
  const Decoded decoded = write_output(choice, tokens, logprobs, delta);
  if (decoded.finish == inference::FinishReason::kNone) {
    return Progress::kRunning;
  }
  run_.close(choice);
  return delta.finish == inference::FinishReason::kNone ? Progress::kChoiceDoneCancelEngine
                                                        : Progress::kChoiceDone;
}

/// The first token of the choice, whichever attempt brought it.
void Generation::start_output(ChoiceRun& choice, const inference::Delta& delta,
                              const inference::StepOutput& output, TimePoint now) {
  if (!first_token_) {
    first_token_ = now;
    if (plan_.announce_worker) {
      answer_->annotate("worker_instance_id", std::to_string(choice.facts().worker.worker.value()));
    }
  }
  text_of(choice).queued_us = delta.queued_us;
  text_of(choice).cached_tokens = delta.cached_tokens;
  usage_.cached_tokens +=
      choice.facts().index % plan_.choices_per_prompt == 0 ? delta.cached_tokens : 0;
  if (plan_.answer.options.token_ids) {
    const uint32_t prompt = choice.facts().prompt;
    answer_->add_prompt_tokens(choice.facts().index, prompt, plan_.prompts[prompt]);
  }
  show_prompt_logprobs(choice, output);
  send_echo(choice, output);
}

Decoded Generation::write_output(ChoiceRun& choice, std::span<const TokenId> tokens,
                                 std::span<const inference::TokenLogprobs> logprobs,
                                 const inference::Delta& delta) {
  static thread_local PipelineOutput out;
  out.clear();
  const bool measured = plan_.texts != nullptr && !tokens.empty() && deltas_++ % 16 == 0;
  static_assert(TextMeters::kSampled == 16);
  const TimePoint begin = measured ? plan_.texts->now() : TimePoint();
  const PipelineResult result =
      text_of(choice).pipeline.feed(tokens, delta.finish, delta.stopped_by_token, out);
  if (measured) {
    plan_.texts->detokenized(begin, tokens.size());
  }
  const Decoded& decoded = result.decoded;
  usage_.completion_tokens += decoded.tokens_used;
  usage_.reasoning_tokens += result.reasoning_tokens;
  text_of(choice).reasoning_tokens += result.reasoning_tokens;
  if (decoded.stop_string) {
    stop_reason_ = plan_.stop_strings->stop(*decoded.stop_string);
  } else if (decoded.stop_token) {
    stop_token_ = decoded.stop_token;
  }
  logprobs = weigh_logprobs(choice,
                            logprobs.first(std::min<size_t>(logprobs.size(), decoded.tokens_used)));
  AnswerPiece piece{.choice = choice.facts().index,
                    .finish = result.finish,
                    .logprobs = logprobs,
                    .usage = shows_usage() ? &usage_ : nullptr};
  if (plan_.want_token_ids) {
    piece.nvext_json = show_token_ids(tokens.first(decoded.tokens_used));
  }
  if (decoded.stop_string) {
    piece.stop_string = *stop_reason_;
  }
  const bool plain = plan_.answer.protocol != nullptr && plan_.answer.protocol->plain;
  if (plan_.answer.options.token_ids || (plan_.format == nullptr && plain)) {
    piece.tokens = tokens.first(std::min<size_t>(tokens.size(), decoded.tokens_used));
  }
  if (plan_.format == nullptr) {
    piece.text = out.text;
    send(piece);
  } else {
    send_events(out.events, piece);
  }
  return decoded;
}

/// For the chunk they are in; those of a body, and of protocols whose events
/// have no place for them, are kept for its end.
std::string_view Generation::show_token_ids(std::span<const TokenId> tokens) {
  if (tokens.empty()) {
    return {};
  }
  if (!plan_.answer.stream || plan_.answer.protocol != nullptr) {
    token_ids_.insert(token_ids_.end(), tokens.begin(), tokens.end());
    return {};
  }
  static thread_local std::string json;
  json.clear();
  api::append_nvext(json, {.completion_token_ids = tokens});
  return json;
}

Progress Generation::finish_choice(ChoiceRun& choice, inference::FinishReason finish,
                                   TimePoint now) {
  last_activity_ = now;
  write_output(choice, {}, {}, {.key = choice.key(), .finish = finish});
  run_.close(choice);
  return Progress::kChoiceDone;
}

std::string Generation::nvext_json(TimePoint now) const {
  api::NvextResponse nvext;
  if (plan_.want_worker_id) {
    const WorkerKey worker = choices().front().facts().worker;
    const WorkerKey prompt = choices().front().prompt().from().value_or(worker);
    nvext.workers = {.prefill_worker_id = prompt.worker.value(),
                     .prefill_dp_rank = prompt.dp_rank,
                     .decode_worker_id = worker.worker.value(),
                     .decode_dp_rank = worker.dp_rank};
  }
  if (plan_.want_worker_id || plan_.want_stop_reason) {
    if (stop_reason_) {
      nvext.stop_string = *stop_reason_;
    } else if (stop_token_) {
      nvext.stop_token = *stop_token_;
    }
  }
  if (plan_.want_timing) {
    nvext.timing.emplace();
    nvext.timing->request_received_ms = plan_.received_unix_ms;
    if (const TimePoint submitted = choices().front().facts().submitted; submitted != TimePoint()) {
      // The loop's clock stands still within a turn.
      nvext.timing->prefill_wait_time_ms =
          milliseconds(std::max(submitted - received_, Duration::zero()));
      nvext.timing->prefill_time_ms =
          milliseconds(std::max(first_token_.value_or(now) - submitted, Duration::zero()));
    }
    nvext.timing->ttft_ms = milliseconds(first_token_.value_or(now) - received_);
    nvext.timing->total_time_ms = milliseconds(now - received_);
    nvext.timing->kv_hit_rate =
        static_cast<double>(usage_.cached_tokens) / std::max(1U, usage_.prompt_tokens);
    nvext.timing->router_queue_depth = choices().front().facts().queue_depth;
    nvext.timing->kv_transfer_estimated_latency_ms =
        milliseconds(choices().front().prompt().transfer());
  }
  if (plan_.want_engine_data) {
    const ChoiceRun& choice = choices().front();
    nvext.engine_data = {.cached_tokens = text_of(choice).cached_tokens,
                         .attempts = uint32_t{choice.journal().attempt().value()} + 1};
    if (text_of(choice).queued_us > 0) {
      nvext.engine_data->queued_ms = text_of(choice).queued_us / 1e3;
    }
  }
  if (!token_ids_.empty()) {
    nvext.completion_token_ids = token_ids_;
  }
  nvext.prompt_logprobs_json = prompt_logprobs_json_;
  if (plan_.dry_run) {
    nvext.token_ids = plan_.prompts.front();
  }
  std::string json;
  append_nvext(json, nvext);
  return json;
}

void Generation::finish(TimePoint now) {
  choose_best();
  answer_->finish(usage_, nvext_json(now));
}

Answer::BodyWriter Generation::take_writer(TimePoint now) {
  choose_best();
  Answer::BodyWriter writer = answer_->take_writer(usage_, nvext_json(now));
  if (!writer) {
    return {};
  }
  // The tokenizer is the model's, and the generation may go before its body is
  // written.
  return [model = plan_.model, writer = std::move(writer)] { return writer(); };
}

void Generation::fail(const api::ApiError& error) {
  answer_->fail(error);
}

void Generation::keep_alive(TimePoint now, Duration interval) {
  // Tokens may come while their text is held back, so the last one says
  // nothing.
  if (now - last_sent_ >= interval) {
    last_sent_ = now;
    answer_->keep_alive();
  }
}

}  // namespace stator::frontend
