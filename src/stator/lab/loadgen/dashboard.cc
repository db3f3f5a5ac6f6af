// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/dashboard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace stator::loadgen {
namespace {

constexpr std::array<std::string_view, 8> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

std::string title(const BenchProgress& progress) {
  std::string out = progress.runs > 0 ? fmt::format("run {}/{}", progress.run, progress.runs)
                                      : fmt::format("run {}", progress.run);
  if (progress.rate > 0) {
    out += fmt::format(" at {:g} requests/s", progress.rate);
  }
  return out;
}

std::string spark_line(const std::deque<double>& values) {
  const double most = values.empty() ? 0 : *std::ranges::max_element(values);
  std::string out;
  for (const double value : values) {
    const double share = most > 0 ? value / most : 0;
    out += kBars[std::min(kBars.size() - 1, static_cast<size_t>(share * kBars.size()))];
  }
  return out;
}

}  // namespace

Dashboard::Rates Dashboard::advance(const LiveView& view) {
  if (view.elapsed_s < last_.elapsed_s || view.sent < last_.sent) {
    last_ = {};  // the next run
    history_.clear();
  }
  const double seconds = std::max(1e-3, view.elapsed_s - std::max(0.0, last_.elapsed_s));
  const auto per = [](uint64_t sum, uint64_t count) {
    return count == 0 ? 0 : static_cast<double>(sum) * 1e-6 / static_cast<double>(count);
  };
  Rates rates;
  rates.requests_per_s = static_cast<double>(view.answered - last_.answered) / seconds;
  rates.chunks_per_s = static_cast<double>(view.chunks - last_.chunks) / seconds;
  rates.first_ms = per(view.first_ns - last_.first_ns, view.firsts - last_.firsts);
  rates.latency_ms = per(view.latency_ns - last_.latency_ns, view.answered - last_.answered);
  last_ = view;
  return rates;
}

std::string Dashboard::draw_frame(const BenchProgress& progress, const LiveView& view) {
  const Rates rates = advance(view);
  history_.push_back(rates.requests_per_s);
  if (history_.size() > kColumns) {
    history_.pop_front();
  }
  std::string out = fmt::format("{}, {:.1f} s\n", title(progress), std::max(0.0, view.elapsed_s));
  out += fmt::format("requests   {:>10.1f}/s   answered {:>9}   failed {:>6}\n",
                     rates.requests_per_s, view.answered, view.failed);
  out += fmt::format("chunks     {:>10.0f}/s   in flight {:>8}   waiting {:>5}\n",
                     rates.chunks_per_s, view.in_flight, view.backlog);
  out += fmt::format("first token {:>8.1f} ms   latency {:>8.1f} ms   (means)\n", rates.first_ms,
                     rates.latency_ms);
  const auto filled = static_cast<size_t>(std::clamp(view.busy_share, 0.0, 1.0) * 20);
  std::string bar;
  for (size_t i = 0; i < 20; ++i) {
    bar += i < filled ? "█" : "░";
  }
  out += fmt::format("generator  {} {:>3.0f} % busy\n", bar, 100 * view.busy_share);
  return out + spark_line(history_) + "\n";
}

std::string Dashboard::draw_line(const BenchProgress& progress, const LiveView& view) {
  const Rates rates = advance(view);
  return fmt::format(
      "{}, {:.0f} s: {:.1f} requests/s, {:.0f} chunks/s, {} in flight, {} waiting, first token "
      "{:.1f} ms, latency {:.1f} ms, {} failed, generator {:.0f} % busy\n",
      title(progress), std::max(0.0, view.elapsed_s), rates.requests_per_s, rates.chunks_per_s,
      view.in_flight, view.backlog, rates.first_ms, rates.latency_ms, view.failed,
      100 * view.busy_share);
}

}  // namespace stator::loadgen
