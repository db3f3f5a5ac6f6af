// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/shared_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/frontend/asked_server.h"
#include "stator/json/value.h"
#include "stator/json/writer.h"
#include "stator/router/router.h"

namespace stator::frontend {
namespace {

using router::Advice;
using router::RouteRequest;

constexpr double kShares[] = {0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1};
constexpr double kMillis[] = {0.1, 0.3, 1, 3, 10, 30, 100};

std::string render_question(const RouteRequest& request) {
  std::string body;
  json::Writer out(body);
  out.begin_object().key("block_hashes").begin_array();
  for (const auto hash : request.sequences) {
    out.value(hash.value());
  }
  out.end_array().end_object();
  return body;
}

class Service final : public SharedCache {
 public:
  Service(std::shared_ptr<AskedServer> server, Duration timeout, const Clock& clock,
          Metrics& metrics)
      : server_(std::move(server)),
        timeout_(timeout),
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
  ~Service() override { server_->stop(); }

  void advise(const RouteRequest& request, Answer answer) override {
    const auto blocks = static_cast<uint32_t>(request.sequences.size());
    if (blocks == 0) {
      answer(std::nullopt);
      return;
    }
    if (server_->paused()) {
      skipped_.add();
      answer(std::nullopt);
      return;
    }
    auto waits = std::make_shared<Answer>(std::move(answer));
    if (!server_->ask({.path = "/check_blocks",
                       .body = render_question(request),
                       .timeout = timeout_,
                       .on_answer = [this, waits, blocks,
                                     asked = clock_.now()](const AskedServer::Answer* got) {
                         return finish(*waits, blocks, asked, got);
                       }})) {
      skipped_.add();
      (*waits)(std::nullopt);
    }
  }

 private:
  bool finish(Answer& answer, uint32_t asked_blocks, TimePoint asked,
              const AskedServer::Answer* got) {
    query_ms_.observe(std::chrono::duration<double, std::milli>(clock_.now() - asked).count());
    const auto shared =
        got != nullptr && got->status == 200 ? read_shared_ranges(got->body) : std::nullopt;
    if (!shared) {
      errors_.add();
      answer(std::nullopt);
      return false;
    }
    const uint32_t blocks = std::min(*shared, asked_blocks);
    hit_rate_.observe(static_cast<double>(blocks) / asked_blocks);
    Advice advice;
    advice.chosen = false;
    advice.shared_blocks = blocks;
    answer(std::move(advice));
    return true;
  }

  const std::shared_ptr<AskedServer> server_;
  const Duration timeout_;
  const Clock& clock_;
  const Counter errors_;
  const Counter skipped_;
  const Histogram hit_rate_;
  const Histogram query_ms_;
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
  const bool scheme = config.url.contains("://");
  const std::string url = base_url(scheme ? config.url : "http://" + config.url);
  if (url.empty() || config.timeout <= Duration::zero()) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("router.shared_cache (flag --router-shared-cache) must be HOST:PORT or "
                    "http://HOST:PORT, not '{}', and router.shared_cache_timeout more "
                    "than 0",
                    config.url));
  }
  STATOR_TRY(auto server,
             AskedServer::start({.thread = "shared-cache",
                                 .url = url,
                                 .log_target = "frontend::shared_cache",
                                 .away = "the shared cache does not answer; deciding without it",
                                 .open_max = kAskedMax},
                                clock));
  return std::make_shared<Service>(std::move(server), config.timeout, clock, metrics);
}

}  // namespace stator::frontend
