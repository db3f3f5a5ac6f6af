// SPDX-License-Identifier: Apache-2.0
#include "stator/router/receipt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "stator/json/writer.h"

namespace stator::router {
namespace {

double finite(double value) {
  return std::isfinite(value) ? value : 0;
}

std::string name_of(const WorkerKey& key) {
  return key.dp_rank == 0 ? to_string(key.worker)
                          : fmt::format("{}/{}", key.worker.value(), key.dp_rank);
}

/// "12", or "12+3+1": device, host memory, disk.
std::string cached_of(const ReceiptCandidate& candidate) {
  const bool is_below = candidate.host_blocks + candidate.disk_blocks > 0;
  return is_below ? fmt::format("{}+{}+{}", candidate.overlap_blocks, candidate.host_blocks,
                                candidate.disk_blocks)
                  : std::to_string(candidate.overlap_blocks);
}

}  // namespace

std::string render_json(const Receipt& receipt) {
  const auto unix_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(receipt.time.time_since_epoch());
  std::string out;
  json::Writer json(out);
  const auto put = [&json](std::string_view key, const auto& value) { json.key(key).value(value); };
  json.begin_object();
  put("request_id", receipt.request_id);
  put("model", receipt.model);
  put("mode", receipt.mode);
  put("time_unix_ms", int64_t{unix_ms.count()});
  put("prompt_tokens", receipt.prompt_tokens);
  put("prompt_blocks", receipt.prompt_blocks);
  put("block_size", receipt.block_size);
  put("best_overlap_blocks", receipt.best_overlap_blocks);
  put("temperature", receipt.temperature);
  json.key("chosen").begin_object();
  put("worker_id", to_string(receipt.chosen.worker));
  put("dp_rank", receipt.chosen.dp_rank);
  json.end_object();
  put("reason", receipt.reason);
  put("workers", receipt.workers);
  put("eligible", receipt.eligible);
  put("queued_ms", std::chrono::duration<double, std::milli>(receipt.queued).count());
  json.key("candidates").begin_array();
  for (const ReceiptCandidate& candidate : receipt.candidates) {
    json.begin_object();
    put("worker_id", to_string(candidate.worker.worker));
    put("dp_rank", candidate.worker.dp_rank);
    put("overlap_blocks", candidate.overlap_blocks);
    put("host_blocks", candidate.host_blocks);
    put("disk_blocks", candidate.disk_blocks);
    put("trust", describe(candidate.trust));
    put("active_prefill_tokens", candidate.active_prefill_tokens);
    put("active_blocks", candidate.active_blocks);
    put("active_requests", candidate.active_requests);
    put("cost", finite(candidate.cost));
    if (candidate.excluded != Exclusion::kNone) {
      put("excluded", describe(candidate.excluded));
    }
    json.end_object();
  }
  json.end_array();
  if (!receipt.media_json.empty()) {
    json.key("media").raw(receipt.media_json);
  }
  json.end_object();
  return out;
}

std::string render_text(const Receipt& receipt) {
  std::string out = fmt::format(
      "request  {}\nmodel    {}\nprompt   {} tokens, {} full blocks of {}\nmode     {}\n"
      "waited   {:.1f} ms in the queue\nchosen   worker {}, of {} eligible among {}: {}\n\n"
      "{:<20} {:>8} {:<11} {:>9} {:>8} {:>9} {:>8}\n",
      receipt.request_id, receipt.model, receipt.prompt_tokens, receipt.prompt_blocks,
      receipt.block_size, receipt.mode,
      std::chrono::duration<double, std::milli>(receipt.queued).count(), name_of(receipt.chosen),
      receipt.eligible, receipt.workers, receipt.reason, "worker", "cached", "trust", "prefill",
      "blocks", "requests", "cost");
  if (!receipt.media_json.empty()) {
    out.insert(out.find("\n\n"), "\nmedia    " + receipt.media_json);
  }
  for (const ReceiptCandidate& candidate : receipt.candidates) {
    const bool chosen = candidate.worker == receipt.chosen;
    fmt::format_to(std::back_inserter(out), "{:<20} {:>8} {:<11} {:>9} {:>8} {:>9} {:>8.2f} {}\n",
                   name_of(candidate.worker), cached_of(candidate), describe(candidate.trust),
                   candidate.active_prefill_tokens, candidate.active_blocks,
                   candidate.active_requests, finite(candidate.cost),
                   chosen ? "<- chosen" : describe(candidate.excluded));
  }
  out +=
      "\ncached, blocks: KV blocks (cached: device+host+disk) · trust: of what is cached · "
      "prefill: prompt tokens queued there · lowest cost wins\n";
  return out;
}

void ReceiptLog::add(const Receipt& receipt) {
  const MutexLock lock(mutex_);
  // Copied into the memory of the one it replaces: the decision goes on writing to its own, which
  // is still in its core's cache.
  Receipt kept;
  if (receipts_.size() == capacity_) {
    kept = std::move(receipts_.front());
    receipts_.pop_front();
  }
  kept = receipt;
  receipts_.push_back(std::move(kept));
}

std::optional<Receipt> ReceiptLog::find(std::string_view request_id) const {
  const MutexLock lock(mutex_);
  if (request_id == "last" && !receipts_.empty()) {
    return receipts_.back();
  }
  const auto it = std::find_if(receipts_.rbegin(), receipts_.rend(), [&](const Receipt& receipt) {
    return receipt.request_id == request_id;
  });
  return it == receipts_.rend() ? std::nullopt : std::optional(*it);
}

}  // namespace stator::router
