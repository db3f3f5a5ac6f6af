// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/page_observer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace stator::scaling {
namespace {

/// Names behind the prefix of a frontend's metrics, and where their growth goes.
struct Known {
  std::string_view name;
  double WindowSums::* sum;
};
constexpr Known kOfFrontends[] = {
    {"_requests_started_total", &WindowSums::started},
    {"_requests_total", &WindowSums::completed},
    {"_input_sequence_tokens_sum", &WindowSums::input_tokens},
    {"_input_sequence_tokens_count", &WindowSums::input_count},
    {"_output_sequence_tokens_sum", &WindowSums::output_tokens},
    {"_output_sequence_tokens_count", &WindowSums::output_count},
    {"_cached_tokens_sum", &WindowSums::cached_tokens},
    {"_time_to_first_token_seconds_sum", &WindowSums::ttft_s},
    {"_time_to_first_token_seconds_count", &WindowSums::ttft_count},
    {"_inter_token_latency_seconds_sum", &WindowSums::itl_s},
    {"_inter_token_latency_seconds_count", &WindowSums::itl_count},
    {"_request_duration_seconds_sum", &WindowSums::duration_s},
    {"_request_duration_seconds_count", &WindowSums::duration_count},
};
constexpr std::string_view kRouter = "dynamo_component_router";
constexpr std::string_view kRegistered = "dynamo_component_router_worker_registered";
constexpr std::string_view kActiveRequests = "stator_router_worker_active_requests";

/// How many of a histogram's values grew above `goal`, which may lie within a bucket.
double above(const std::map<double, double>& before, const std::map<double, double>& now,
             double goal) {
  double low = 0, low_count = 0, total = 0, below = std::nan("");
  for (const auto& [bound, count] : now) {
    const auto old = before.find(bound);
    const double grown = count - (old == before.end() ? 0 : old->second);
    if (std::isnan(below) && bound >= goal) {
      const double part = std::isinf(bound) || bound <= low ? 0 : (goal - low) / (bound - low);
      below = low_count + part * (grown - low_count);
    }
    low = bound;
    low_count = grown;
    total = std::max(total, grown);
  }
  return std::isnan(below) ? 0 : std::max(0.0, total - below);
}

/// A source that was missing so often has been taken away: the others count without it.
constexpr uint32_t kGoneLooks = 30;

uint64_t whole_of(std::string_view text) {
  uint64_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

bool is_prefill(const Sample& sample) {
  return sample.label("worker_type") == "prefill";
}

}  // namespace

bool PageObserver::counts(const Sample& sample) const {
  const auto matches = [](std::string_view wanted, std::string_view got) {
    return wanted.empty() || got.empty() || wanted == got;
  };
  return matches(config_.model, sample.label("model")) &&
         matches(config_.name_space, sample.label("dynamo_namespace"));
}

PageObserver::Counters PageObserver::read(const MetricsPage& page) const {
  Counters out;
  const std::string prefix = config_.from_router ? std::string(kRouter) : config_.prefix;
  const auto filter = [this](const Sample& sample) { return counts(sample); };
  for (const Known& known : kOfFrontends) {
    std::string name = prefix + std::string(known.name);
    if (const auto sum = page.sum(name, filter)) {
      out.values.emplace(std::move(name), *sum);
    }
  }
  const auto buckets = [&](std::string_view name, std::map<double, double>& into) {
    page.each(prefix + std::string(name), [&](const Sample& sample) {
      const std::string_view le = sample.label("le");
      double bound = std::numeric_limits<double>::infinity();
      if (le != "+Inf") {
        std::from_chars(le.data(), le.data() + le.size(), bound);
      }
      if (counts(sample)) {
        into[bound] += sample.value;
      }
    });
  };
  buckets("_time_to_first_token_seconds_bucket", out.ttft_buckets);
  buckets("_inter_token_latency_seconds_bucket", out.itl_buckets);
  for (const auto& [name, accepted] :
       {std::pair("stator_engine_draft_tokens_total", false),
        std::pair("stator_engine_accepted_draft_tokens_total", true)}) {
    if (const auto sum = page.sum(name, filter)) {
      out.values.emplace(accepted ? "accepted" : "drafts", *sum);
    }
  }
  return out;
}

void PageObserver::read_loads(const MetricsPage& page) {
  const auto visit = [&](std::string_view name, double WorkerLoad::* field, double scale) {
    page.each(name, [&](const Sample& sample) {
      if (!counts(sample)) {
        return;
      }
      const uint64_t worker = whole_of(sample.label("worker_id"));
      const auto rank = static_cast<uint32_t>(whole_of(sample.label("dp_rank")));
      WorkerLoad& load = loads_[{worker, rank}];
      load.worker = worker;
      load.rank = rank;
      load.computes_prompts = is_prefill(sample);
      load.*field += sample.value * scale;
    });
  };
  visit(config_.prefix + "_worker_active_prefill_tokens", &WorkerLoad::queued_prefill_tokens, 1);
  visit(config_.prefix + "_worker_active_decode_blocks", &WorkerLoad::decode_kv_tokens,
        config_.block_size);
  visit(kActiveRequests, &WorkerLoad::running, 1);
  uint32_t prefill = 0, decode = 0;
  bool known = false;
  page.each(kRegistered, [&](const Sample& sample) {
    if (counts(sample) && sample.value >= 0 && sample.value < 1e6) {
      known = true;
      (is_prefill(sample) ? prefill : decode) += static_cast<uint32_t>(sample.value);
    }
  });
  if (known) {
    // Every frontend knows every worker, some sooner than others.
    seen_.prefill_ready = std::max(seen_.prefill_ready.value_or(0), prefill);
    seen_.decode_ready = std::max(seen_.decode_ready.value_or(0), decode);
  }
  const auto filter = [this](const Sample& sample) { return counts(sample); };
  seen_.queued += page.sum(config_.prefix + "_router_queue_pending_requests", filter).value_or(0);
}

void PageObserver::complain(std::string text) {
  if (seen_.broken.empty()) {
    seen_.broken = std::move(text);
  }
}

void PageObserver::begin() {
  now_.clear();
  loads_.clear();
  seen_ = {};
  complete_ = true;
  restart_ = false;
}

void PageObserver::fail(std::string_view source, std::string_view why) {
  complain(fmt::format("{} cannot be read: {}", source, why));
}

void PageObserver::add(std::string_view source, const MetricsPage& page) {
  Counters counters = read(page);
  read_loads(page);
  const auto before = last_.find(source);
  if (before == last_.end()) {
    complete_ = false;
  } else {
    subtract(source, before->second, counters);
  }
  now_.insert_or_assign(std::string(source), std::move(counters));
}

void PageObserver::subtract(std::string_view source, const Counters& before, const Counters& now) {
  WindowSums& sums = seen_.window ? *seen_.window : seen_.window.emplace();
  const auto growth = [&](const std::string& name) {
    const auto value = now.values.find(name);
    const auto old = before.values.find(name);
    const double is = value == now.values.end() ? 0 : value->second;
    const double was = old == before.values.end() ? 0 : old->second;
    if (!std::isfinite(is)) {
      restart_ = true;
      complain(fmt::format("{}: {} is no number", source, name));
      return 0.0;
    }
    if (is < was) {
      restart_ = true;
      complain(fmt::format("{}: {} fell from {} to {}, the counters began again", source, name, was,
                           is));
      return 0.0;
    }
    return is - was;
  };
  const std::string prefix = config_.from_router ? std::string(kRouter) : config_.prefix;
  for (const Known& known : kOfFrontends) {
    sums.*known.sum += growth(prefix + std::string(known.name));
  }
  sums.drafts += growth("drafts");
  sums.accepted_drafts += growth("accepted");
  sums.ttft_late += above(before.ttft_buckets, now.ttft_buckets, config_.ttft_ms * 1e-3);
  sums.itl_late += above(before.itl_buckets, now.itl_buckets, config_.itl_ms * 1e-3);
}

Observation PageObserver::end(double now_s) {
  seen_.window_s = last_s_ < 0 ? 0 : now_s - last_s_;
  if (seen_.window_s < 0) {
    restart_ = true;
    complain(fmt::format("the clock went back by {:.1f} s", -seen_.window_s));
  }
  if (now_.empty()) {
    complain("nothing answered");
  }
  for (const auto& [source, counters] : last_) {
    uint32_t& looks = missing_[source];
    looks = now_.contains(source) ? 0 : looks + 1;
    if (looks > 0 && looks <= kGoneLooks) {
      complain(fmt::format("{} is gone", source));
    }
  }
  if (!complete_ || last_s_ < 0) {
    seen_.window.reset();  // a source that is new has no window yet
  }
  for (auto& [key, load] : loads_) {
    seen_.loads.push_back(load);
  }
  if (!seen_.broken.empty() && !restart_ && last_s_ >= 0) {
    return std::move(seen_);  // the next look covers this one's time, too
  }
  last_ = std::move(now_);
  last_s_ = now_s;
  return std::move(seen_);
}

}  // namespace stator::scaling
