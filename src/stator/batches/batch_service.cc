// SPDX-License-Identifier: Apache-2.0
#include "stator/batches/batch_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "stator/core/log.h"

namespace stator::batches {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 1s;
constexpr Duration kRetryFirst = 500ms;
constexpr Duration kRetryMost = 30s;

bool is_overload(int status) {
  return status == 429 || status == 503 || status == 529;
}

Duration retry_delay(uint32_t attempts) {
  return std::min<Duration>(kRetryFirst * (1U << std::min(attempts, 6U)), kRetryMost);
}

}  // namespace

BatchService::BatchService(const BatchConfig& config, Metrics& metrics, Clock& clock)
    : config_(config),
      clock_(clock),
      lines_done_(metrics.counter("stator_batch_lines_total", "requests of batches that ended",
                                  {{"outcome", "completed"}})),
      lines_failed_(metrics.counter("stator_batch_lines_total", "requests of batches that ended",
                                    {{"outcome", "failed"}})),
      lines_retried_(
          metrics.counter("stator_batch_retries_total", "requests of batches that were put back")),
      inflight_gauge_(metrics.gauge("stator_batch_lines_inflight",
                                    "requests of batches that run (batches.inflight_max)")),
      running_gauge_(metrics.gauge("stator_batches_running", "batches that have not ended")),
      file_bytes_gauge_(metrics.gauge("stator_batch_file_bytes",
                                      "bytes of all files (batches.folder_bytes_max)")) {}

Result<std::unique_ptr<BatchService>> BatchService::open(const BatchConfig& config,
                                                         Metrics& metrics, Clock& clock) {
  std::unique_ptr<BatchService> service(new BatchService(config, metrics, clock));
  STATOR_TRY(service->store_, BatchStore::open(service->config_, service->now_s()));
  return service;
}

BatchService::~BatchService() {
  stop();
}

void BatchService::start(LineRunner& runner) {
  runner_ = &runner;
  thread_ = net::Thread("batches", [this] { run(); });
}

void BatchService::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  MutexLock lock(mutex_);
  for (Asked& waiting : asked_) {
    waiting.reply(Error(Code::kUnavailable, "the server is shutting down, retry"));
  }
  asked_.clear();
}

bool BatchService::ask(ApiCall call, Reply reply) {
  {
    MutexLock lock(mutex_);
    if (stopping_ || asked_.size() >= kCallsMax) {
      return false;
    }
    asked_.push_back({std::move(call), std::move(reply)});
  }
  wake_.notify_one();
  return true;
}

bool BatchService::wait_for_work(std::vector<Asked>& asked, std::vector<Finished>& finished) {
  MutexLock lock(mutex_);
  if (asked_.empty() && finished_.empty() && !stopping_) {
    wake_.wait_for(lock, kTick);
  }
  asked.assign(std::make_move_iterator(asked_.begin()), std::make_move_iterator(asked_.end()));
  finished.assign(std::make_move_iterator(finished_.begin()),
                  std::make_move_iterator(finished_.end()));
  asked_.clear();
  finished_.clear();
  return !stopping_;
}

void BatchService::run() {
  std::vector<Asked> asked;
  std::vector<Finished> finished;
  TimePoint last_tick;
  while (wait_for_work(asked, finished)) {
    for (const Finished& line : finished) {
      take(line);
    }
    for (const Asked& one : asked) {
      one.reply(answer_call(one.call, *store_, config_, now_s()));
    }
    pump();
    if (const TimePoint now = clock_.now(); now - last_tick >= kTick) {
      last_tick = now;
      tick();
    }
  }
  for (const Asked& one : asked) {
    one.reply(Error(Code::kUnavailable, "the server is shutting down, retry"));
  }
}

RunningBatch* BatchService::find(std::string_view id) {
  const auto known = std::ranges::find(
      running_, id, [](const auto& batch) -> std::string_view { return batch->id(); });
  return known == running_.end() ? nullptr : known->get();
}

void BatchService::take(const Finished& finished) {
  --inflight_;
  RunningBatch* const batch = find(finished.batch);
  if (batch == nullptr) {
    return;  // it failed as a whole
  }
  const int status = finished.outcome.status;
  const uint32_t attempts = batch->attempts(finished.line);
  const Entry* const entry = store_->find(finished.batch);
  const bool may_retry = entry != nullptr && entry->status() == "in_progress";
  if (may_retry && (is_overload(status) || (status >= 500 && attempts + 1 < kAttemptsMax))) {
    lines_retried_.add();
    batch->retry(finished.line, clock_.now() + retry_delay(attempts));
    return;
  }
  const LineResult result{.index = finished.line,
                          .custom_id = batch->line(finished.line).custom_id,
                          .request_id = finished.outcome.request_id,
                          .status = status,
                          .body = finished.outcome.body,
                          .error_code = {},
                          .error_message = {}};
  if (Status kept = batch->record(result); !kept) {
    fail_batch(finished.batch, kept.error());
    return;
  }
  (result.good() ? lines_done_ : lines_failed_).add();
}

/// Batches that are open in the store and not here yet: new ones, and those of an earlier process.
void BatchService::open_batches() {
  std::vector<std::pair<std::string, Error>> broken;
  for (const Entry* entry : store_->list(Entry::Kind::kBatch)) {
    if (!is_open(*entry) || find(entry->id()) != nullptr) {
      continue;
    }
    auto running = RunningBatch::open(*store_, *entry, config_.lines_max);
    if (running) {
      running_.push_back(std::move(*running));
    } else {
      broken.emplace_back(entry->id(), std::move(running.error()));
    }
  }
  for (const auto& [id, error] : broken) {
    fail_batch(id, error);
  }
}

void BatchService::dispatch(RunningBatch& batch) {
  const BatchLine* const line = batch.take(clock_.now());
  if (line == nullptr) {
    return;
  }
  ++inflight_;
  auto done = [this, id = batch.id(), index = line->index](LineOutcome outcome) {
    {
      MutexLock lock(mutex_);
      finished_.push_back({id, index, std::move(outcome)});
    }
    wake_.notify_one();
  };
  const LineRunner::Call call{.path = batch.endpoint(),
                              .body = line->body,
                              .owner = store_->find(batch.id())->owner,
                              .priority = config_.priority};
  if (!runner_->run(call, std::move(done))) {
    --inflight_;
    batch.retry(line->index, clock_.now() + kRetryFirst);
  }
}

/// Gives batches turns until enough runs, and moves those on that have nothing left to run.
void BatchService::pump() {
  open_batches();
  for (size_t idle = 0;
       !running_.empty() && idle < running_.size() && inflight_ < config_.inflight_max;) {
    RunningBatch& batch = *running_[turn_++ % running_.size()];
    const Entry* const entry = store_->find(batch.id());
    const uint32_t before = inflight_;
    if (entry != nullptr && entry->status() == "in_progress") {
      dispatch(batch);
    }
    idle = inflight_ == before ? idle + 1 : 0;
  }
  std::vector<std::string> ids;
  for (const auto& batch : running_) {
    ids.push_back(batch->id());
  }
  for (const std::string& id : ids) {
    advance(id);
  }
  inflight_gauge_.set(inflight_);
  running_gauge_.set(static_cast<double>(running_.size()));
  file_bytes_gauge_.set(static_cast<double>(store_->file_bytes()));
}

void BatchService::advance(const std::string& id) {
  RunningBatch& batch = *find(id);
  const Entry* const entry = store_->find(id);
  if (entry == nullptr) {
    std::erase_if(running_, [&](const auto& one) { return one->id() == id; });
    return;
  }
  const bool cancelling = entry->status() == "cancelling";
  const bool expired = !cancelling && entry->number("expires_at") <= now_s();
  if (batch.complete()) {
    finalize(batch, cancelling ? "cancelled" : "completed");
  } else if ((cancelling || expired) && batch.inflight() == 0) {
    const Status given_up =
        cancelling
            ? batch.give_up("batch_cancelled", "This request was not run: the batch was cancelled.")
            : batch.give_up("batch_expired",
                            "This request could not be executed before the completion window "
                            "expired.");
    if (!given_up) {
      fail_batch(id, given_up.error());
      return;
    }
    finalize(batch, cancelling ? "cancelled" : "expired");
  }
}

/// `end`: "completed", "expired" or "cancelled". May be done twice, if the process dies in between.
void BatchService::finalize(RunningBatch& running, std::string_view end) {
  const std::string id = running.id();
  Entry entry = *store_->find(id);
  json::Value& object = entry.object;
  if (object.text_at({"output_file_id"}).empty() && running.completed() > 0) {
    object["output_file_id"] = store_->make_id("file-");
  }
  if (object.text_at({"error_file_id"}).empty() && running.failed() > 0) {
    object["error_file_id"] = store_->make_id("file-");
  }
  if (end == "completed") {
    object["status"] = "finalizing";
    object["finalizing_at"] = now_s();
  }
  object["request_counts"]["completed"] = running.completed();
  object["request_counts"]["failed"] = running.failed();
  Status done = store_->save(entry);
  if (done) {
    auto files = running.write_files(*store_, entry);
    done = files ? Status() : Status(std::move(files.error()));
    const int64_t now = now_s();
    for (const auto& [key, name, bytes] :
         {std::tuple{"output_file_id", "output", files ? files->output_bytes : 0},
          std::tuple{"error_file_id", "error", files ? files->error_bytes : 0}}) {
      const std::string file_id(object.text_at({key}));
      if (done && !file_id.empty()) {
        done = store_->adopt_file(file_id,
                                  {.owner = entry.owner,
                                   .filename = fmt::format("{}_{}.jsonl", id, name),
                                   .purpose = "batch_output",
                                   .content = {},
                                   .expires_s = now + entry.output_keep_s},
                                  bytes, now);
      }
    }
  }
  if (done) {
    object["status"] = end;
    object[fmt::format("{}_at", end)] = now_s();
    done = store_->save(std::move(entry));
  }
  if (!done) {
    fail_batch(id, done.error());
    return;
  }
  std::erase_if(running_, [&](const auto& one) { return one->id() == id; });
  std::error_code ignored;
  std::filesystem::remove(store_->results_path(id), ignored);
  std::filesystem::remove(store_->results_path(id) + ".lock", ignored);
}

/// Something is wrong with the batch's files; an operator has to look.
void BatchService::fail_batch(const std::string& id, const Error& error) {
  log::error("batches", error.message(), {{"batch", id}, {"folder", config_.folder}});
  std::erase_if(running_, [&](const auto& one) { return one->id() == id; });
  const Entry* const known = store_->find(id);
  if (known == nullptr) {
    return;
  }
  Entry entry = *known;
  entry.object["status"] = "failed";
  entry.object["failed_at"] = now_s();
  json::Value item = json::Value::object();
  item["code"] = "server_error";
  item["message"] = "the server cannot read or write this batch's files";
  item["param"] = nullptr;
  item["line"] = nullptr;
  entry.object["errors"]["object"] = "list";
  entry.object["errors"]["data"] = json::Value::array({std::move(item)});
  if (Status saved = store_->save(std::move(entry)); !saved) {
    log::error("batches", saved.error().message(), {{"batch", id}});
  }
}

void BatchService::save_counts(const RunningBatch& running) {
  const Entry* const known = store_->find(running.id());
  if (known == nullptr) {
    return;
  }
  const json::Value* const counts = known->object.find("request_counts");
  const json::Value* const before = counts == nullptr ? nullptr : counts->find("completed");
  const json::Value* const failed = counts == nullptr ? nullptr : counts->find("failed");
  if (before != nullptr && failed != nullptr && before->as_uint64() == running.completed() &&
      failed->as_uint64() == running.failed()) {
    return;
  }
  Entry entry = *known;
  entry.object["request_counts"]["completed"] = running.completed();
  entry.object["request_counts"]["failed"] = running.failed();
  if (Status saved = store_->save(std::move(entry)); !saved) {
    log::error("batches", saved.error().message(), {{"batch", running.id()}});
  }
}

/// Once a second: what was written goes to the disk, counts become visible, old files go.
void BatchService::tick() {
  for (const auto& batch : running_) {
    if (Status synced = batch->sync(); !synced) {
      log::error("batches", synced.error().message(), {{"batch", batch->id()}});
    }
    save_counts(*batch);
  }
  store_->expire(now_s());
}

}  // namespace stator::batches
