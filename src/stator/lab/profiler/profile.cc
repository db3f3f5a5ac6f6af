// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/profiler/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "stator/json/value.h"
#include "stator/lab/profiler/npz.h"

namespace stator::profiler {
namespace {

constexpr uint32_t kShortest = 100;
constexpr uint32_t kPrefillRoom = 512;  // below the longest context
constexpr size_t kTable = 100;          // rows of a simulated engine's table

json::Value list(const std::vector<double>& values) {
  json::Value out = json::Value::array();
  for (const double each : values) {
    out.push_back(each);
  }
  return out;
}

std::vector<double> span(double low, double high, size_t count) {
  std::vector<double> out;
  for (size_t i = 0; i < count; ++i) {
    out.push_back(low + (high - low) * static_cast<double>(i) / static_cast<double>(count - 1));
  }
  return out;
}

perf::ProfileData data_of(const Profile& profile) {
  perf::ProfileData out;
  for (const auto& [isl, ttft] : profile.prefill) {
    out.prefill_isl.push_back(isl);
    out.prefill_ttft_ms.push_back(ttft);
  }
  for (const DecodePoint& point : profile.decode) {
    out.decode_requests.push_back(point.concurrency);
    out.decode_context.push_back(point.input_tokens + profile.plan.decode_tokens / 2.0);
    out.decode_itl_ms.push_back(point.itl_ms);
  }
  return out;
}

/// The reference's arrays.
struct Arrays {
  std::vector<double> isl, ttft, prefill_yield, usage, context, itl, decode_yield, most;
};
Arrays arrays_of(const Profile& profile) {
  Arrays out;
  const double gpus = profile.plan.gpus;
  for (const auto& [isl, ttft] : profile.prefill) {
    out.isl.push_back(isl);
    out.ttft.push_back(ttft);
    out.prefill_yield.push_back(isl / ttft * 1000 / gpus);
  }
  for (const DecodePoint& point : profile.decode) {
    const double context = point.input_tokens + profile.plan.decode_tokens / 2.0;
    out.usage.push_back(context * point.concurrency /
                        static_cast<double>(profile.plan.max_kv_tokens));
    out.context.push_back(context);
    out.itl.push_back(point.itl_ms);
    out.decode_yield.push_back(point.concurrency * 1000 / point.itl_ms / gpus);
  }
  out.most = {static_cast<double>(profile.plan.max_kv_tokens)};
  return out;
}

/// What a simulated engine of the reference reads: one axis of prompts, a grid of decodes.
std::string mocker_table(const Profile& profile) {
  const auto timing = perf::ProfileTiming::create(data_of(profile));
  if (!timing) {
    return {};
  }
  const auto isl = span(kShortest, std::max(kShortest + 1, profile.plan.max_context), kTable);
  const auto kv = span(1, static_cast<double>(profile.plan.max_kv_tokens), kTable);
  const auto context = span(kShortest, std::max(kShortest + 1, profile.plan.max_context), kTable);
  std::vector<double> ttft, itl;
  for (const double tokens : isl) {
    perf::PassShape shape;
    shape.add_prompt(0, static_cast<uint64_t>(tokens));
    ttft.push_back((*timing)->prefill_ms(shape));
  }
  for (const double tokens : kv) {
    for (const double each : context) {
      perf::PassShape shape;
      shape.decode_requests = static_cast<uint32_t>(std::max(1.0, tokens / each));
      shape.context_tokens = static_cast<uint64_t>(shape.decode_requests * each);
      itl.push_back((*timing)->decode_ms(shape));
    }
  }
  return write_npz({{"prefill_isl", isl, {}},
                    {"prefill_ttft_ms", ttft, {}},
                    {"decode_active_kv_tokens", kv, {}},
                    {"decode_context_length", context, {}},
                    {"decode_itl", itl, {kTable, kTable}}});
}

/// The largest yield within a goal; nothing if no point keeps it.
json::Value pick_prefill(const Profile& profile) {
  const Arrays a = arrays_of(profile);
  json::Value best;
  double most = 0;
  for (size_t i = 0; i < a.isl.size(); ++i) {
    if ((profile.plan.ttft_ms <= 0 || a.ttft[i] <= profile.plan.ttft_ms) &&
        a.prefill_yield[i] > most) {
      most = a.prefill_yield[i];
      best = {
          {"isl", a.isl[i]}, {"ttft_ms", a.ttft[i]}, {"tokens_per_s_per_gpu", a.prefill_yield[i]}};
    }
  }
  return best;
}

json::Value pick_decode(const Profile& profile) {
  const Arrays a = arrays_of(profile);
  json::Value best;
  double most = 0;
  for (size_t i = 0; i < a.itl.size(); ++i) {
    if ((profile.plan.itl_ms <= 0 || a.itl[i] <= profile.plan.itl_ms) && a.decode_yield[i] > most) {
      most = a.decode_yield[i];
      best = {{"concurrency", profile.decode[i].concurrency},
              {"context", a.context[i]},
              {"itl_ms", a.itl[i]},
              {"tokens_per_s_per_gpu", a.decode_yield[i]}};
    }
  }
  return best;
}

}  // namespace

std::vector<uint32_t> prefill_lengths(const ProfilePlan& plan) {
  std::vector<uint32_t> out;
  if (plan.max_context <= kShortest + kPrefillRoom || plan.prefill_points == 0) {
    return out;
  }
  const uint32_t end = plan.max_context - kPrefillRoom;
  const uint32_t step = std::max(1U, (end - kShortest) / plan.prefill_points);
  for (uint32_t isl = kShortest; isl < end && out.size() < plan.prefill_points; isl += step) {
    out.push_back(isl);
  }
  return out;
}

std::vector<std::pair<uint32_t, uint32_t>> decode_grid(const ProfilePlan& plan) {
  std::vector<std::pair<uint32_t, uint32_t>> out;
  if (plan.max_context <= kShortest + plan.decode_tokens || plan.decode_points == 0) {
    return out;
  }
  const uint32_t end = plan.max_context - plan.decode_tokens;
  const uint32_t step = std::max(1U, (end - kShortest) / plan.decode_points);
  uint32_t lengths = 0;
  for (uint32_t isl = kShortest; isl < end && lengths < plan.decode_points;
       isl += step, ++lengths) {
    const auto most = static_cast<uint32_t>(std::min<uint64_t>(
        plan.concurrency_max, plan.max_kv_tokens / (uint64_t{isl} + plan.decode_tokens)));
    uint32_t last = 0;
    for (uint32_t i = 0; i < plan.decode_points; ++i) {
      const double part = plan.decode_points < 2 ? 1 : double{1} * i / (plan.decode_points - 1);
      const auto n = static_cast<uint32_t>(std::lround(1 + part * (std::max(1U, most) - 1)));
      if (most > 0 && n > last) {
        out.emplace_back(isl, n);
        last = n;
      }
    }
  }
  return out;
}

std::string render_json(const Profile& profile) {
  const perf::ProfileFit& fit = profile.fit;
  json::Value out = json::Value::object();
  out["model"] = profile.plan.model;
  out["max_context"] = profile.plan.max_context;
  out["max_kv_tokens"] = profile.plan.max_kv_tokens;
  out["gpus"] = profile.plan.gpus;
  out["elapsed_s"] = profile.elapsed_s;
  json::Value& prefill = out["prefill"] = json::Value::array();
  for (const auto& [isl, ttft] : profile.prefill) {
    prefill.push_back({{"isl", isl}, {"ttft_ms", ttft}});
  }
  json::Value& decode = out["decode"] = json::Value::array();
  for (const DecodePoint& point : profile.decode) {
    decode.push_back({{"isl", point.input_tokens},
                      {"concurrency", point.concurrency},
                      {"itl_ms", point.itl_ms}});
  }
  out["fit"] = {{"prefill_base_ms", fit.prefill_base_ms},
                {"prefill_token_ms", fit.prefill_token_ms},
                {"prefill_pair_ms", fit.prefill_pair_ms},
                {"prefill_error_percent", fit.prefill_error_percent},
                {"decode_base_ms", fit.decode_base_ms},
                {"decode_sequence_ms", fit.decode_sequence_ms},
                {"decode_context_ms", fit.decode_context_ms},
                {"decode_error_percent", fit.decode_error_percent}};
  out["timing"] = fmt::format(
      "linear:step_us={:.6g},prefill_token_us={:.6g},prefill_pair_us={:.6g},decode_sequence_us={:."
      "6g},"
      "decode_context_token_us={:.6g}",
      fit.decode_base_ms * 1e3, fit.prefill_token_ms * 1e3, fit.prefill_pair_ms * 1e3,
      fit.decode_sequence_ms * 1e3, fit.decode_context_ms * 1e3);
  out["best_prefill"] = pick_prefill(profile);
  out["best_decode"] = pick_decode(profile);
  return json::to_pretty_text(out) + "\n";
}

std::vector<std::pair<std::string, std::string>> render_files(const Profile& profile) {
  const Arrays a = arrays_of(profile);
  json::Value prefill = json::Value::object(), decode = json::Value::object();
  prefill["prefill_isl"] = list(a.isl);
  prefill["prefill_ttft"] = list(a.ttft);
  prefill["prefill_thpt_per_gpu"] = list(a.prefill_yield);
  decode["x_kv_usage"] = list(a.usage);
  decode["y_context_length"] = list(a.context);
  decode["z_itl"] = list(a.itl);
  decode["z_thpt_per_gpu"] = list(a.decode_yield);
  decode["max_kv_tokens"] = list(a.most);
  return {{"selected_prefill_interpolation/raw_data.npz",
           write_npz({{"prefill_isl", a.isl, {}},
                      {"prefill_ttft", a.ttft, {}},
                      {"prefill_thpt_per_gpu", a.prefill_yield, {}}})},
          {"selected_decode_interpolation/raw_data.npz",
           write_npz({{"x_kv_usage", a.usage, {}},
                      {"y_context_length", a.context, {}},
                      {"z_itl", a.itl, {}},
                      {"z_thpt_per_gpu", a.decode_yield, {}},
                      {"max_kv_tokens", a.most, {}}})},
          {"prefill_raw_data.json", json::to_text(prefill) + "\n"},
          {"decode_raw_data.json", json::to_text(decode) + "\n"},
          {"perf_data.npz", mocker_table(profile)},
          {"profile.json", render_json(profile)}};
}

}  // namespace stator::profiler
