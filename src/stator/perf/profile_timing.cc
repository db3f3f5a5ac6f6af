// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/profile_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>
#include <utility>

#include "stator/io/read_file.h"
#include "stator/json/value.h"

namespace stator::perf {
namespace {

constexpr uint64_t kFileBytesMax = 64UL << 20;
constexpr size_t kPointsMin = 3;
constexpr size_t kNear = 4;

/// y ≈ b₀ + b₁x₁ + b₂x₂ by relative least squares over those columns that `used` names; nothing if
/// they depend on each other.
std::optional<std::array<double, 3>> solve(const std::vector<std::array<double, 3>>& x,
                                           const std::vector<double>& y,
                                           const std::array<bool, 3>& used) {
  std::array<std::array<double, 4>, 3> m{};
  for (size_t i = 0; i < y.size(); ++i) {
    const double weight = 1 / std::max(1e-9, y[i] * y[i]);
    for (size_t r = 0; r < 3; ++r) {
      for (size_t c = 0; c < 3; ++c) {
        m[r][c] += weight * x[i][r] * x[i][c];
      }
      m[r][3] += weight * x[i][r] * y[i];
    }
  }
  for (size_t r = 0; r < 3; ++r) {
    if (!used[r]) {
      for (size_t c = 0; c < 3; ++c) {
        m[r][c] = m[c][r] = 0;
      }
      m[r][r] = 1;
      m[r][3] = 0;
    }
  }
  for (size_t p = 0; p < 3; ++p) {
    size_t best = p;
    for (size_t r = p + 1; r < 3; ++r) {
      best = std::abs(m[r][p]) > std::abs(m[best][p]) ? r : best;
    }
    std::swap(m[p], m[best]);
    if (std::abs(m[p][p]) < 1e-300) {
      return std::nullopt;
    }
    for (size_t r = 0; r < 3; ++r) {
      const double factor = r == p ? 0 : m[r][p] / m[p][p];
      for (size_t c = p; c < 4 && factor != 0; ++c) {
        m[r][c] -= factor * m[p][c];
      }
    }
  }
  return std::array{m[0][3] / m[0][0], m[1][3] / m[1][1], m[2][3] / m[2][2]};
}

double value(const std::array<double, 3>& b, const std::array<double, 3>& x) {
  return b[0] * x[0] + b[1] * x[1] + b[2] * x[2];
}

/// The best of all sets of columns whose coefficients are not negative.
std::array<double, 3> fit_positive(const std::vector<std::array<double, 3>>& x,
                                   const std::vector<double>& y) {
  std::array<double, 3> best{};
  double best_error = INFINITY;
  for (unsigned set = 1; set < 8; ++set) {
    const auto b = solve(x, y, {(set & 1U) != 0, (set & 2U) != 0, (set & 4U) != 0});
    if (!b || std::ranges::any_of(*b, [](double each) { return !(each >= 0); })) {
      continue;
    }
    double error = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      error += std::pow((value(*b, x[i]) - y[i]) / std::max(1e-9, y[i]), 2);
    }
    // Fewer columns go first where more explain nothing.
    if (error < best_error * (1 - 1e-9)) {
      best_error = error;
      best = *b;
    }
  }
  return best;
}

double error_percent(const std::array<double, 3>& b, const std::vector<std::array<double, 3>>& x,
                     const std::vector<double>& y) {
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    sum += 100 * std::abs(value(b, x[i]) - y[i]) / std::max(1e-9, y[i]);
  }
  return y.empty() ? 0 : sum / static_cast<double>(y.size());
}

std::array<double, 3> prefill_row(double tokens) {
  return {1, tokens, tokens * (tokens + 1) / 2};
}

std::array<double, 3> decode_row(double requests, double context) {
  return {1, requests, requests * context};
}

Status check(const std::vector<double>& values, std::string_view name, bool positive) {
  for (const double each : values) {
    if (!std::isfinite(each) || (positive && !(each > 0))) {
      return Error(Code::kInvalidArgument,
                   fmt::format("{} must be numbers above 0, one is {}", name, each));
    }
  }
  return {};
}

Result<std::vector<double>> array_of(const json::Value& object, std::string_view key) {
  const json::Value* found = object.find(key);
  if (found == nullptr || !found->is_array() || found->size() > kProfilePointsMax) {
    return Error(Code::kInvalidArgument, fmt::format("'{}' must be a list of numbers", key));
  }
  std::vector<double> out;
  for (const json::Value& each : found->elements()) {
    const auto number = each.as_double();
    if (!number) {
      return Error(Code::kInvalidArgument, fmt::format("'{}' must be a list of numbers", key));
    }
    out.push_back(*number);
  }
  return out;
}

}  // namespace

Result<ProfileFit> fit_profile(const ProfileData& data) {
  if (data.prefill_isl.size() < kPointsMin || data.decode_itl_ms.size() < kPointsMin ||
      data.prefill_isl.size() != data.prefill_ttft_ms.size() ||
      data.decode_requests.size() != data.decode_itl_ms.size() ||
      data.decode_context.size() != data.decode_itl_ms.size()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("a profile needs {} points of prompts and of decodes, equally many of "
                             "each array",
                             kPointsMin));
  }
  STATOR_CHECK(check(data.prefill_isl, "prefill_isl", true));
  STATOR_CHECK(check(data.prefill_ttft_ms, "prefill_ttft", true));
  STATOR_CHECK(check(data.decode_requests, "numbers of sequences", true));
  STATOR_CHECK(check(data.decode_context, "y_context_length", true));
  STATOR_CHECK(check(data.decode_itl_ms, "z_itl", true));
  std::vector<std::array<double, 3>> prompts, decodes;
  for (const double isl : data.prefill_isl) {
    prompts.push_back(prefill_row(isl));
  }
  for (size_t i = 0; i < data.decode_itl_ms.size(); ++i) {
    decodes.push_back(decode_row(data.decode_requests[i], data.decode_context[i]));
  }
  const auto p = fit_positive(prompts, data.prefill_ttft_ms);
  const auto d = fit_positive(decodes, data.decode_itl_ms);
  return ProfileFit{.prefill_base_ms = p[0],
                    .prefill_token_ms = p[1],
                    .prefill_pair_ms = p[2],
                    .decode_base_ms = d[0],
                    .decode_sequence_ms = d[1],
                    .decode_context_ms = d[2],
                    .prefill_error_percent = error_percent(p, prompts, data.prefill_ttft_ms),
                    .decode_error_percent = error_percent(d, decodes, data.decode_itl_ms)};
}

Result<ProfileData> parse_profile(std::string_view prefill_json, std::string_view decode_json) {
  STATOR_TRY(const json::Value prefill, json::parse(prefill_json), "prefill_raw_data.json");
  STATOR_TRY(const json::Value decode, json::parse(decode_json), "decode_raw_data.json");
  ProfileData out;
  STATOR_TRY(out.prefill_isl, array_of(prefill, "prefill_isl"));
  STATOR_TRY(out.prefill_ttft_ms, array_of(prefill, "prefill_ttft"));
  STATOR_TRY(const auto usage, array_of(decode, "x_kv_usage"));
  STATOR_TRY(out.decode_context, array_of(decode, "y_context_length"));
  STATOR_TRY(out.decode_itl_ms, array_of(decode, "z_itl"));
  STATOR_TRY(const auto most, array_of(decode, "max_kv_tokens"));
  if (most.size() != 1 || !(most[0] > 0) || usage.size() != out.decode_context.size()) {
    return Error(Code::kInvalidArgument,
                 "'max_kv_tokens' must be one number above 0, x_kv_usage as long as "
                 "y_context_length");
  }
  for (size_t i = 0; i < usage.size(); ++i) {
    out.decode_requests.push_back(
        std::max(1.0, std::round(usage[i] * most[0] / std::max(1.0, out.decode_context[i]))));
  }
  return out;
}

Result<std::unique_ptr<ProfileTiming>> ProfileTiming::create(ProfileData data) {
  STATOR_TRY(const ProfileFit fit, fit_profile(data));
  std::vector<size_t> order(data.prefill_isl.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return data.prefill_isl[i]; });
  ProfileData sorted = data;
  for (size_t i = 0; i < order.size(); ++i) {
    sorted.prefill_isl[i] = data.prefill_isl[order[i]];
    sorted.prefill_ttft_ms[i] = data.prefill_ttft_ms[order[i]];
  }
  return std::unique_ptr<ProfileTiming>(new ProfileTiming(std::move(sorted), fit));
}

Result<std::unique_ptr<ProfileTiming>> ProfileTiming::read(const std::string& folder) {
  const auto find = [&](std::string_view kind) {
    const std::string name = fmt::format("{}_raw_data.json", kind);
    const auto nested =
        std::filesystem::path(folder) / fmt::format("selected_{}_interpolation", kind) / name;
    std::error_code ignored;
    return std::filesystem::exists(nested, ignored) ? nested : std::filesystem::path(folder) / name;
  };
  STATOR_TRY(const std::string prefill, io::read_file(find("prefill").string(), kFileBytesMax));
  STATOR_TRY(const std::string decode, io::read_file(find("decode").string(), kFileBytesMax));
  STATOR_TRY(ProfileData data, parse_profile(prefill, decode), folder);
  return create(std::move(data));
}

double ProfileTiming::prefill_ms(const PassShape& shape) const {
  if (shape.prefill_new_tokens == 0) {
    return 0;
  }
  const auto& x = data_.prefill_isl;
  const auto& y = data_.prefill_ttft_ms;
  const auto tokens = static_cast<double>(shape.prefill_new_tokens);
  const double fresh_pairs = tokens * (tokens + 1) / 2;
  // What earlier tokens add to attention was not measured alone: the fit says it.
  const double before =
      fit_.prefill_pair_ms * std::max(0.0, static_cast<double>(shape.prefill_pairs) - fresh_pairs);
  if (tokens <= x.front()) {
    const double fitted = value({fit_.prefill_base_ms, fit_.prefill_token_ms, fit_.prefill_pair_ms},
                                prefill_row(tokens));
    return std::min(y.front(), std::max(fitted, y.front() * tokens / x.front())) + before;
  }
  if (tokens >= x.back()) {
    const double fit_here = value(
        {fit_.prefill_base_ms, fit_.prefill_token_ms, fit_.prefill_pair_ms}, prefill_row(tokens));
    const double fit_last = value(
        {fit_.prefill_base_ms, fit_.prefill_token_ms, fit_.prefill_pair_ms}, prefill_row(x.back()));
    return y.back() + std::max(0.0, fit_here - fit_last) + before;
  }
  const auto above = static_cast<size_t>(std::ranges::upper_bound(x, tokens) - x.begin());
  const double part = (tokens - x[above - 1]) / std::max(1e-9, x[above] - x[above - 1]);
  return y[above - 1] + part * (y[above] - y[above - 1]) + before;
}

double ProfileTiming::decode_ms(const PassShape& shape) const {
  if (shape.decode_requests == 0) {
    return 0;
  }
  const double n = shape.decode_requests;
  const double context = static_cast<double>(shape.context_tokens) / n;
  const std::array<double, 3> b{fit_.decode_base_ms, fit_.decode_sequence_ms,
                                fit_.decode_context_ms};
  const double fitted = value(b, decode_row(n, context));
  std::array<std::pair<double, double>, kNear> near{};
  near.fill({INFINITY, 0});
  for (size_t i = 0; i < data_.decode_itl_ms.size(); ++i) {
    const double distance = std::hypot(std::log2(data_.decode_requests[i] / n),
                                       std::log2(data_.decode_context[i] / std::max(1.0, context)));
    const double off = data_.decode_itl_ms[i] -
                       value(b, decode_row(data_.decode_requests[i], data_.decode_context[i]));
    std::pair<double, double> each{distance, off};
    for (auto& kept : near) {
      if (each.first < kept.first) {
        std::swap(each, kept);
      }
    }
  }
  if (near[0].first == 0) {
    return fitted + near[0].second;
  }
  double weights = 0, sum = 0;
  for (const auto& [distance, off] : near) {
    if (std::isfinite(distance)) {
      weights += 1 / (distance * distance);
      sum += off / (distance * distance);
    }
  }
  // Far from all points the fit alone speaks.
  const double trust = 1 / (1 + near[0].first * near[0].first);
  return std::max(fitted * 0.1, fitted + trust * sum / weights);
}

}  // namespace stator::perf
