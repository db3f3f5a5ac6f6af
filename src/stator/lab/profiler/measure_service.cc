// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "stator/core/mutex.h"
#include "stator/core/random.h"
#include "stator/json/value.h"
#include "stator/lab/profiler/profile.h"
#include "stator/net/http_client.h"
#include "stator/net/thread.h"

namespace stator::profiler {
namespace {

constexpr uint32_t kFirstId = 10;
constexpr uint64_t kKvTokensUsual = 2'000'000;
constexpr Duration kRequestTimeout = std::chrono::minutes(10);

double milliseconds(Duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

/// Times of one stream.
struct StreamTimes {
  double ttft_ms = 0;
  double itl_ms = 0;  ///< mean after the first token
};

/// Finds the lines of a server-sent stream that carry tokens, and what it says of usage at its end.
class StreamReader {
 public:
  explicit StreamReader(const Clock& clock) : clock_(clock), begin_(clock.now()) {}

  bool take(std::string_view bytes) {
    rest_ += bytes;
    size_t end = 0;
    while ((end = rest_.find('\n')) != std::string::npos) {
      std::string_view line(rest_.data(), end);
      line = line.substr(0, line.find('\r'));
      if (line.starts_with("data: ") && line != "data: [DONE]") {
        event(line.substr(6));
      }
      rest_.erase(0, end + 1);
    }
    return true;
  }

  Result<StreamTimes> times(uint32_t wanted) const {
    if (!error_.empty()) {
      return Error(Code::kUnavailable, error_);
    }
    if (first_ == TimePoint()) {
      return Error(Code::kUnavailable, "the server sent no token");
    }
    const double tokens = tokens_ > 0 ? tokens_ : chunks_;
    if (wanted > 1 && tokens < wanted * 0.9) {
      return Error(Code::kUnavailable,
                   fmt::format("{} tokens came instead of {}: does the server heed ignore_eos?",
                               tokens, wanted));
    }
    return StreamTimes{.ttft_ms = milliseconds(first_ - begin_),
                       .itl_ms = tokens > 1 ? milliseconds(last_ - first_) / (tokens - 1) : 0};
  }

 private:
  void event(std::string_view text) {
    const auto value = json::parse(text);
    if (!value) {
      return;
    }
    if (const json::Value* error = value->find("error"); error != nullptr) {
      error_ = error->is_object() ? error->text_at({"message"}) : error->text();
    }
    if (const auto tokens = value->at("usage").at("completion_tokens").as_double()) {
      tokens_ = *tokens;
    }
    if (value->at("choices").size() == 0) {
      return;
    }
    last_ = clock_.now();
    first_ = first_ == TimePoint() ? last_ : first_;
    ++chunks_;
  }

  const Clock& clock_;
  const TimePoint begin_;
  TimePoint first_{}, last_{};
  double tokens_ = 0, chunks_ = 0;
  std::string rest_, error_;
};

class Prober {
 public:
  Prober(ProfilePlan& plan, const Clock& clock) : plan_(plan), clock_(clock), random_(7) {}

  /// What the server says of itself, where the plan says nothing.
  Status ask_server() {
    STATOR_TRY(const std::string text, get("/v1/models"));
    STATOR_TRY(const json::Value models, json::parse(text), "/v1/models");
    const json::Value& first = models.at("data").at(size_t{0});
    plan_.model = plan_.model.empty() ? std::string(first.text_at({"id"})) : plan_.model;
    for (const json::Value& each : models.at("data").elements()) {
      const auto length = each.at("max_model_len").as_uint64();
      if (plan_.max_context == 0 && each.text_at({"id"}) == plan_.model && length) {
        plan_.max_context = static_cast<uint32_t>(std::min<uint64_t>(*length, UINT32_MAX));
      }
    }
    if (plan_.model.empty() || plan_.max_context == 0) {
      return Error(Code::kInvalidArgument,
                   "the server does not say its model or max_model_len: give --model and "
                   "--max-context");
    }
    if (plan_.max_kv_tokens == 0) {
      const auto metrics = get("/metrics");
      plan_.max_kv_tokens = metrics ? kv_tokens_of(*metrics) : 0;
      plan_.max_kv_tokens = plan_.max_kv_tokens == 0 ? kKvTokensUsual : plan_.max_kv_tokens;
    }
    return {};
  }

  std::vector<uint32_t> prompt(uint32_t tokens) {
    std::vector<uint32_t> out(tokens);
    for (uint32_t& id : out) {
      id = kFirstId + static_cast<uint32_t>(random_.below(plan_.vocabulary - kFirstId));
    }
    return out;
  }

  Result<StreamTimes> stream(const std::vector<uint32_t>& prompt, uint32_t tokens) const {
    json::Value body = json::Value::object();
    body["model"] = plan_.model;
    json::Value& ids = body["prompt"] = json::Value::array();
    for (const uint32_t id : prompt) {
      ids.push_back(id);
    }
    body["max_tokens"] = tokens;
    body["min_tokens"] = tokens;
    body["ignore_eos"] = true;
    body["temperature"] = 0;
    body["stream"] = true;
    body["stream_options"]["include_usage"] = true;
    StreamReader reader(clock_);
    STATOR_TRY(const net::HttpClientResponse response,
               net::http_request({.method = "POST",
                                  .url = plan_.url + "/v1/completions",
                                  .headers = headers(),
                                  .body = json::to_text(body)},
                                 {.timeout = kRequestTimeout, .stall_timeout = kRequestTimeout},
                                 [&](std::string_view bytes) { return reader.take(bytes); }),
               plan_.url);
    if (response.status != 200) {
      return Error(Code::kUnavailable, fmt::format("{} answered {} to a prompt of {} tokens",
                                                   plan_.url, response.status, prompt.size()));
    }
    return reader.times(tokens);
  }

  /// The mean over streams that run at once, their prompts being cached already.
  Result<double> decode(uint32_t tokens, uint32_t concurrency) {
    std::vector<std::vector<uint32_t>> prompts;
    for (uint32_t i = 0; i < concurrency; ++i) {
      prompts.push_back(prompt(tokens));
      STATOR_TRY(const StreamTimes warm, stream(prompts.back(), 1));
      static_cast<void>(warm);
    }
    Mutex mutex;
    double sum = 0;
    std::string failure;
    {
      std::vector<net::Thread> threads;
      threads.reserve(concurrency);
      for (const auto& each : prompts) {
        threads.emplace_back("stream", [&] {
          const auto times = stream(each, plan_.decode_tokens);
          const MutexLock lock(mutex);
          if (times) {
            sum += times->itl_ms;
          } else {
            failure = times.error().message();
          }
        });
      }
    }
    if (!failure.empty()) {
      return Error(Code::kUnavailable, failure);
    }
    return sum / concurrency;
  }

 private:
  net::HttpHeaderList headers() const {
    net::HttpHeaderList out = {{"Content-Type", "application/json"}};
    if (!plan_.api_key.empty()) {
      out.emplace_back("Authorization", "Bearer " + plan_.api_key);
    }
    return out;
  }
  Result<std::string> get(const std::string& path) const {
    STATOR_TRY(net::HttpClientResponse response,
               net::http_request(
                   {.method = "GET", .url = plan_.url + path, .headers = headers(), .body = {}}),
               plan_.url + path);
    if (response.status != 200) {
      return Error(Code::kUnavailable,
                   fmt::format("{}{} answered {}", plan_.url, path, response.status));
    }
    return std::move(response.body);
  }
  /// vLLM tells blocks and their size as labels of one metric.
  static uint64_t kv_tokens_of(std::string_view text) {
    const size_t at = text.find("cache_config_info{");
    const std::string_view line = at == std::string_view::npos
                                      ? std::string_view()
                                      : text.substr(at, text.find('\n', at) - at);
    const auto label = [&](std::string_view name) -> uint64_t {
      const std::string key = fmt::format("{}=\"", name);
      const size_t found = line.find(key);
      return found == std::string_view::npos
                 ? 0
                 : std::strtoull(std::string(line.substr(found + key.size(), 20)).c_str(), nullptr,
                                 10);
    };
    return label("num_gpu_blocks") * label("block_size");
  }

  ProfilePlan& plan_;
  const Clock& clock_;
  Random random_;
};

}  // namespace

Result<Profile> measure(ProfilePlan plan, const Clock& clock,
                        const std::function<void(const std::string&)>& progress) {
  const TimePoint begin = clock.now();
  Profile out;
  Prober prober(plan, clock);
  STATOR_CHECK(prober.ask_server());
  const std::vector<uint32_t> lengths = prefill_lengths(plan);
  const auto grid = decode_grid(plan);
  if (lengths.size() < 3 || grid.size() < 3) {
    return Error(Code::kInvalidArgument,
                 fmt::format("a context of {} tokens and a KV cache of {} leave {} prompt lengths "
                             "and {} decode points, 3 are needed of each: raise --max-context or "
                             "--max-kv-tokens, or lower --decode-tokens",
                             plan.max_context, plan.max_kv_tokens, lengths.size(), grid.size()));
  }
  STATOR_TRY(const StreamTimes warm, prober.stream(prober.prompt(lengths.front()), 2));
  static_cast<void>(warm);
  for (const uint32_t isl : lengths) {
    std::vector<double> times;
    for (uint32_t i = 0; i < std::max(1U, plan.repeats); ++i) {
      STATOR_TRY(const StreamTimes each, prober.stream(prober.prompt(isl), 1));
      times.push_back(each.ttft_ms);
    }
    std::ranges::sort(times);
    out.prefill.emplace_back(isl, times[times.size() / 2]);
    progress(fmt::format("prefill {} tokens: {:.2f} ms", isl, out.prefill.back().second));
  }
  for (const auto& [isl, concurrency] : grid) {
    STATOR_TRY(const double itl, prober.decode(isl, concurrency));
    out.decode.push_back({isl, concurrency, itl});
    progress(fmt::format("decode {} × {} tokens: {:.2f} ms per token", concurrency, isl, itl));
  }
  out.plan = plan;
  perf::ProfileData data;
  for (const auto& [isl, ttft] : out.prefill) {
    data.prefill_isl.push_back(isl);
    data.prefill_ttft_ms.push_back(ttft);
  }
  for (const DecodePoint& point : out.decode) {
    data.decode_requests.push_back(point.concurrency);
    data.decode_context.push_back(point.input_tokens + plan.decode_tokens / 2.0);
    data.decode_itl_ms.push_back(point.itl_ms);
  }
  STATOR_TRY(out.fit, perf::fit_profile(data));
  out.elapsed_s = std::chrono::duration<double>(clock.now() - begin).count();
  return out;
}

}  // namespace stator::profiler
