// SPDX-License-Identifier: Apache-2.0
#include "stator/router/receipt.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

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
  namespace json = boost::json;
  json::array candidates;
  for (const ReceiptCandidate& candidate : receipt.candidates) {
    json::object entry{{"worker_id", to_string(candidate.worker.worker)},
                       {"dp_rank", candidate.worker.dp_rank},
                       {"overlap_blocks", candidate.overlap_blocks},
                       {"host_blocks", candidate.host_blocks},
                       {"disk_blocks", candidate.disk_blocks},
                       {"trust", json::string_view(describe(candidate.trust))},
                       {"active_prefill_tokens", candidate.active_prefill_tokens},
                       {"active_blocks", candidate.active_blocks},
                       {"active_requests", candidate.active_requests},
                       {"cost", finite(candidate.cost)}};
    if (candidate.excluded != Exclusion::kNone) {
      entry["excluded"] = json::string_view(describe(candidate.excluded));
    }
    candidates.push_back(std::move(entry));
  }
  const auto unix_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(receipt.time.time_since_epoch());
  return json::serialize(json::object{
      {"request_id", receipt.request_id},
      {"model", receipt.model},
      {"mode", json::string_view(receipt.mode)},
      {"time_unix_ms", unix_ms.count()},
      {"prompt_tokens", receipt.prompt_tokens},
      {"prompt_blocks", receipt.prompt_blocks},
      {"block_size", receipt.block_size},
      {"best_overlap_blocks", receipt.best_overlap_blocks},
      {"temperature", receipt.temperature},
      {"chosen",
       {{"worker_id", to_string(receipt.chosen.worker)}, {"dp_rank", receipt.chosen.dp_rank}}},
      {"reason", json::string_view(receipt.reason)},
      {"workers", receipt.workers},
      {"eligible", receipt.eligible},
      {"queued_ms", std::chrono::duration<double, std::milli>(receipt.queued).count()},
      {"candidates", std::move(candidates)}});
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
