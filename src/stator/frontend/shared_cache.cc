// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/shared_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <utility>

#include "stator/core/flat_map.h"
#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/json/value.h"
#include "stator/json/writer.h"
#include "stator/net/http_streams.h"
#include "stator/net/thread.h"
#include "stator/router/router.h"

namespace stator::frontend {
namespace {

using router::Advice;
using router::RouteRequest;

constexpr std::string_view kLogTarget = "frontend::shared_cache";
constexpr size_t kAnswerBytesMax = size_t{1} << 20;
constexpr Duration kTurn = std::chrono::milliseconds(100);
constexpr double kShares[] = {0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1};
constexpr double kMillis[] = {0.1, 0.3, 1, 3, 10, 30, 100};

struct Question {
  std::string body{};
  uint32_t blocks = 0;
  router::Advisor::Answer answer;
};

class Service final : public SharedCache, public net::HttpStreamsListener {
 public:
  Service(SharedCacheConfig config, const Clock& clock, Metrics& metrics)
      : config_(std::move(config)),
        clock_(clock),
        errors_(metrics.counter("dynamo_component_router_shared_cache_errors_total",
                                "questions to the shared cache without a usable answer")),
        skipped_(metrics.counter("stator_router_shared_cache_skipped_total",
                                 "requests it was not asked about: it had just failed, or too many "
                                 "questions were open")),
        hit_rate_(metrics.histogram("dynamo_component_router_shared_cache_hit_rate",
                                    "share of a prompt's blocks that the shared cache has",
                                    kShares)),
        query_ms_(metrics.histogram("dynamo_router_overhead_shared_cache_query_ms",
                                    "time until it answered", kMillis)) {}
  ~Service() override {
    stopping_.store(true);
    if (thread_.joinable()) {
      streams_->wake();
      thread_.join();
    }
    std::deque<Question> left;
    {
      const MutexLock lock(mutex_);
      left.swap(questions_);
    }
    for (Question& question : left) {
      question.answer(std::nullopt);
    }
  }

  Status open() {
    STATOR_TRY(streams_, net::HttpStreams::create({}, *this, clock_));
    thread_ = net::Thread("shared-cache", [this] { run(); });
    return {};
  }

  void advise(const RouteRequest& request, Answer answer) override {
    Question question{.blocks = static_cast<uint32_t>(request.sequences.size()),
                      .answer = std::move(answer)};
    const bool paused =
        clock_.now().time_since_epoch().count() < paused_until_.load(std::memory_order_relaxed);
    if (paused || question.blocks == 0 || open_.load() >= kAskedMax) {
      skipped_.add(question.blocks > 0 ? 1 : 0);
      question.answer(std::nullopt);
      return;
    }
    json::Writer out(question.body);
    out.begin_object().key("block_hashes").begin_array();
    for (const auto hash : request.sequences) {
      out.value(hash.value());
    }
    out.end_array().end_object();
    ++open_;
    {
      const MutexLock lock(mutex_);
      questions_.push_back(std::move(question));
    }
    streams_->wake();
  }

  // On the thread.
  void on_head(net::HttpStreamId stream, int status, std::string_view) override {
    calls_.at(stream).status = status;
  }
  void on_bytes(net::HttpStreamId stream, std::string_view bytes) override {
    Call& call = calls_.at(stream);
    if (call.body.size() + bytes.size() <= kAnswerBytesMax) {
      call.body += bytes;
    }
  }
  void on_end(net::HttpStreamId stream, Status status) override {
    const auto known = calls_.find(stream);
    Call call = std::move(known->second);
    calls_.erase(known);
    finish(std::move(call), status.has_value());
  }

 private:
  struct Call {
    Answer answer;
    uint32_t blocks = 0;
    TimePoint asked;
    int status = 0;
    std::string body;
  };

  void run() {
    while (!stopping_.load()) {
      std::deque<Question> questions;
      {
        const MutexLock lock(mutex_);
        questions.swap(questions_);
      }
      for (Question& question : questions) {
        send(std::move(question));
      }
      streams_->turn(kTurn);
    }
    for (auto& [stream, call] : calls_) {
      call.answer(std::nullopt);
    }
    calls_.clear();
  }

  void send(Question question) {
    auto started =
        streams_->start({.method = "POST",
                         .url = config_.url + "/check_blocks",
                         .headers = {{"Content-Type", "application/json"}},
                         .body = std::move(question.body)},
                        {.connect_timeout = config_.timeout, .timeout = config_.timeout});
    Call call{.answer = std::move(question.answer),
              .blocks = question.blocks,
              .asked = clock_.now(),
              .status = 0,
              .body = {}};
    if (started) {
      calls_.emplace(*started, std::move(call));
    } else {
      finish(std::move(call), false);
    }
  }

  void finish(Call call, bool answered) {
    query_ms_.observe(std::chrono::duration<double, std::milli>(clock_.now() - call.asked).count());
    const auto shared =
        answered && call.status == 200 ? read_shared_ranges(call.body) : std::nullopt;
    note(shared.has_value());
    if (!shared) {
      errors_.add();
      reply(call.answer, std::nullopt);
      return;
    }
    const uint32_t blocks = std::min(*shared, call.blocks);
    hit_rate_.observe(static_cast<double>(blocks) / call.blocks);
    Advice advice;
    advice.chosen = false;
    advice.shared_blocks = blocks;
    reply(call.answer, std::move(advice));
  }

  void reply(Answer& answer, std::optional<Advice> advice) {
    --open_;
    answer(std::move(advice));
  }

  void note(bool good) {
    failed_ = good ? 0 : failed_ + 1;
    if (failed_ == kFailuresMax) {
      log::warn(kLogTarget, "the shared cache does not answer; deciding without it",
                {{"url", config_.url}});
    }
    if (failed_ >= kFailuresMax) {
      paused_until_.store((clock_.now() + kPause).time_since_epoch().count(),
                          std::memory_order_relaxed);
    }
  }

  const SharedCacheConfig config_;
  const Clock& clock_;
  const Counter errors_;
  const Counter skipped_;
  const Histogram hit_rate_;
  const Histogram query_ms_;
  std::unique_ptr<net::HttpStreams> streams_;
  FlatMap<net::HttpStreamId, Call> calls_;  // of the thread; bounded by kAskedMax
  int failed_ = 0;                          // in a row; of the thread
  std::atomic<int64_t> paused_until_{0};
  std::atomic<size_t> open_{0};
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::deque<Question> questions_ STATOR_GUARDED_BY(mutex_);
  net::Thread thread_;
};

}  // namespace

std::optional<uint32_t> read_shared_ranges(std::string_view body) {
  const auto answer = json::parse(body);
  const json::Value* const ranges = answer ? answer->find("ranges") : nullptr;
  if (ranges == nullptr || !ranges->is_array()) {
    return std::nullopt;
  }
  uint32_t covered = 0;
  for (const json::Value& range : ranges->elements()) {
    if (!range.is_array() || range.elements().size() != 2) {
      return std::nullopt;
    }
    const auto first = range.elements()[0].as_uint64();
    const auto behind = range.elements()[1].as_uint64();
    if (!first || !behind || *behind < *first || *behind > UINT32_MAX) {
      return std::nullopt;
    }
    if (*first <= covered) {
      covered = std::max(covered, static_cast<uint32_t>(*behind));
    }
  }
  return covered;
}

Result<std::shared_ptr<SharedCache>> SharedCache::start(const SharedCacheConfig& config,
                                                        const Clock& clock, Metrics& metrics) {
  SharedCacheConfig checked = config;
  if (!checked.url.contains("://")) {
    checked.url = "http://" + checked.url;
  }
  while (checked.url.ends_with('/')) {
    checked.url.pop_back();
  }
  const bool is_http = checked.url.starts_with("http://") || checked.url.starts_with("https://");
  if (!is_http || checked.timeout <= Duration::zero()) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("router.shared_cache (flag --router-shared-cache) must be HOST:PORT or "
                    "http://HOST:PORT, not '{}', and router.shared_cache_timeout more "
                    "than 0",
                    config.url));
  }
  auto service = std::make_shared<Service>(std::move(checked), clock, metrics);
  STATOR_CHECK(service->open());
  return std::shared_ptr<SharedCache>(std::move(service));
}

}  // namespace stator::frontend
