// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/engine_watch.h"

#include <fmt/format.h>

#include <utility>

#include "stator/core/log.h"

namespace stator::engine::adapters {
namespace {

constexpr std::string_view kLogTarget = "engine::adapter";
// Polls that may fail in a row before an engine that does accept connections counts as gone.
constexpr uint32_t kFailuresMax = 3;
// Adapters that somebody loads at the server itself are seen after so many polls.
constexpr uint32_t kPollsPerList = 10;

}  // namespace

EngineWatch::EngineWatch(const Dialect& dialect, const EngineFacts& facts, std::string url)
    : dialect_(dialect), facts_(facts), url_(std::move(url)), polls_to_list_(kPollsPerList) {}

std::string_view EngineWatch::next_path() {
  const Traits& traits = dialect_.traits();
  if (traits.lora && polls_to_list_ == 0) {
    polls_to_list_ = kPollsPerList;
    asked_ = Asked::kModels;
    return kModelsPath;
  }
  polls_to_list_ -= polls_to_list_ > 0 ? 1 : 0;
  const bool scrape = !traits.metrics_path.empty() && !metrics_missing_;
  asked_ = scrape ? Asked::kLoad : Asked::kHealth;
  return scrape ? traits.metrics_path : traits.health_path;
}

EngineWatch::Finding EngineWatch::failed(const Status& reached, int status) {
  const bool refused = !reached && reached.error().code() == Code::kUnavailable;
  if (asked_ == Asked::kLoad && status == 501) {
    metrics_missing_ = true;  // llama.cpp without --metrics
    return {};
  }
  Finding found;
  if (refused || status == 503 || ++failures_ >= kFailuresMax) {
    found.up = false;
    found.why = reached ? fmt::format("status {}", status) : reached.error().message();
    list_next();  // a new process has other adapters
  }
  return found;
}

EngineWatch::Finding EngineWatch::on_answer(const Status& reached, int status,
                                            std::string_view body) {
  if (!reached || status >= 500) {
    return failed(reached, status);
  }
  failures_ = 0;
  Finding found;
  if (asked_ == Asked::kModels) {
    EngineFacts facts;
    facts.model = facts_.model;
    if (status == 200 && dialect_.learn(kModelsPath, body, facts)) {
      found.adapters = std::move(facts.adapters);
    }
    return found;
  }
  if (asked_ == Asked::kHealth) {
    found.up = status == 200;
    found.why = *found.up ? "" : fmt::format("status {}", status);
    found.reading.emplace();
    return found;
  }
  LoadReading reading;
  if (status != 200 || !dialect_.read_load(body, facts_, reading)) {
    metrics_missing_ = true;
    log::warn(kLogTarget, "the engine has no metrics we know: its load is what we sent it",
              {{"url", url_}, {"path", dialect_.traits().metrics_path}});
    return found;
  }
  note_start(reading.process_start_s);
  found.up = true;
  found.reading = reading;
  return found;
}

void EngineWatch::note_start(double process_start_s) {
  const double before = std::exchange(process_start_s_, process_start_s);
  if (before != 0 && before != process_start_s) {
    log::warn(kLogTarget, "the engine was restarted", {{"url", url_}});
    list_next();
  }
}

}  // namespace stator::engine::adapters
