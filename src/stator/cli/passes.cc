// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <string>

#include "stator/app/event_carrier.h"
#include "stator/app/signals.h"
#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/kv_events/forward_pass_publisher.h"
#include "stator/kv_events/forward_pass_wire.h"

namespace stator::cli {
namespace {

using namespace std::chrono_literals;

std::string as_json(const kv_events::ForwardPassMessage& message) {
  const engine::ForwardPass& pass = message.pass;
  const engine::PassWork& work = pass.scheduled;
  const engine::PassQueue& queue = pass.queued;
  return fmt::format(
      R"({{"worker_id":"{}","dp_rank":{},"counter_id":{},"published_at":{},"wall_time":{:.9f},)"
      R"("scheduled_requests":{{"num_prefill_requests":{},"sum_prefill_tokens":{},)"
      R"("var_prefill_length":{},"sum_prefill_kv_tokens":{},"num_decode_requests":{},)"
      R"("sum_decode_kv_tokens":{},"var_decode_kv_tokens":{}}},)"
      R"("queued_requests":{{"num_prefill_requests":{},"sum_prefill_tokens":{},)"
      R"("var_prefill_length":{},"num_decode_requests":{},"sum_decode_kv_tokens":{},)"
      R"("var_decode_kv_tokens":{}}}}})"
      "\n",
      message.worker.value(), pass.dp_rank, pass.counter, message.published_at_ms,
      pass.wall_seconds, work.prefill_requests, work.prefill_tokens, work.prefill_length_var,
      work.prefill_kv_tokens, work.decode_requests, work.decode_kv_tokens, work.decode_kv_var,
      queue.prefill_requests, queue.prefill_tokens, queue.prefill_length_var, queue.decode_requests,
      queue.decode_kv_tokens, queue.decode_kv_var);
}

std::string as_text(const kv_events::ForwardPassMessage& message) {
  const engine::ForwardPass& pass = message.pass;
  const std::string whose =
      fmt::format("{} rank {} pass {}", message.worker.value(), pass.dp_rank, pass.counter);
  if (pass.scheduled == engine::PassWork()) {
    return whose + ": idle\n";
  }
  return fmt::format(
      "{}: {:.3f} ms, {} prompts ({} tokens, {} of them had before), {} decodes ({} KV tokens), "
      "queued {} prompts ({} tokens), {} preempted\n",
      whose, pass.wall_seconds * 1e3, pass.scheduled.prefill_requests,
      pass.scheduled.prefill_tokens, pass.scheduled.prefill_kv_tokens,
      pass.scheduled.decode_requests, pass.scheduled.decode_kv_tokens, pass.queued.prefill_requests,
      pass.queued.prefill_tokens, pass.queued.decode_requests);
}

/// Prints what comes, on the broker's thread.
class Printer final : public kv_events::NatsListener {
 public:
  Printer(bool json, uint64_t count_max) : json_(json), left_(count_max) {}
  void on_message(std::string_view /*subject*/, std::string_view payload,
                  std::string_view /*reply*/) override {
    const auto message = kv_events::decode_forward_pass(payload);
    if (!message) {
      log::warn("passes", message.error().message());
      return;
    }
    const MutexLock lock(mutex_);
    if (left_ > 0) {
      print(json_ ? as_json(*message) : as_text(*message));
      --left_;
    }
  }
  bool done() {
    const MutexLock lock(mutex_);
    return left_ == 0;
  }

 private:
  const bool json_;
  Mutex mutex_;
  uint64_t left_ STATOR_GUARDED_BY(mutex_);
};

Result<uint64_t> count_of(const Invocation& invocation) {
  const auto option = invocation.options.find("--count");
  if (option == invocation.options.end()) {
    return UINT64_MAX;
  }
  const std::string& text = option->second;
  uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count == 0) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--count '{}' is not a number from 1 on", text));
  }
  return count;
}

}  // namespace

Status run_passes(Invocation& invocation) {
  STATOR_TRY(const uint64_t count, count_of(invocation));
  Metrics metrics;
  Signals signals;
  STATOR_TRY(const auto broker,
             app::open_event_carrier(invocation.settings.events, "passes", metrics));
  if (broker == nullptr) {
    return Error(Code::kInvalidArgument,
                 "forward passes come over a broker: --events nats://HOST:PORT, the same as the "
                 "workers'");
  }
  Printer printer(invocation.options.contains("--json"), count);
  STATOR_TRY(const auto subscription,
             broker->subscribe(kv_events::forward_passes_subject("*", "*"), printer));
  while (!printer.done() && !signals.wait_for(50ms)) {
  }
  return {};
}

}  // namespace stator::cli
