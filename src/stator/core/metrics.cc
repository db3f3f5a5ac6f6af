// SPDX-License-Identifier: Apache-2.0
#include "stator/core/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "stator/core/assert.h"
#include "stator/core/flat_map.h"

namespace stator {
namespace {

std::atomic<uint32_t> g_next_thread{0};

uint32_t this_thread_index(uint32_t limit) {
  static thread_local const uint32_t index = g_next_thread.fetch_add(1, std::memory_order_relaxed);
  return index % limit;
}

void append_label_value(std::string& out, std::string_view value) {
  for (const char c : value) {
    if (c == '\\' || c == '"') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
}

std::string render_labels(const MetricLabels& labels) {
  std::string out;
  for (const auto& [key, value] : labels) {
    out += out.empty() ? "" : ",";
    out += key;
    out += "=\"";
    append_label_value(out, value);
    out += '"';
  }
  return out;
}

std::string render_number(double value) {
  if (std::isinf(value)) {
    return value > 0 ? "+Inf" : "-Inf";
  }
  return fmt::format("{}", value);
}

}  // namespace

struct Metrics::SlotBlock {
  std::atomic<uint64_t> slots[kSlotsMax] = {};
};

struct Metrics::Series {
  std::string labels;
  uint32_t slot = 0;
  std::vector<double> bounds;
  std::atomic<double> gauge{0};
  std::function<double()> read;
  bool fresh = true;
  bool removed = false;
};

/// Text, and behind it what a callback will say.
struct Metrics::Chunk {
  std::string text;
  std::function<double()> read;
};

struct Metrics::Family {
  std::string name;
  std::string help;
  std::string type;
  std::deque<Series> series;  // deque: handles point into it
  FlatMap<std::string, Series*> shown;
  std::vector<Series*> free;  // removed, for reuse; in `series` all the same
};

Metrics::Metrics() = default;

Metrics::~Metrics() {
  for (auto& block : blocks_) {
    delete block.load();
  }
}

std::atomic<uint64_t>& Metrics::slot(uint32_t index) {
  std::atomic<SlotBlock*>& cell = blocks_[this_thread_index(kThreadsMax)];
  SlotBlock* block = cell.load(std::memory_order_acquire);
  if (block == nullptr) [[unlikely]] {
    auto fresh = std::make_unique<SlotBlock>();
    if (cell.compare_exchange_strong(block, fresh.get(), std::memory_order_acq_rel)) {
      block = fresh.release();
    }
  }
  return block->slots[index];
}

uint64_t Metrics::sum(uint32_t index) const {
  uint64_t total = 0;
  for (const auto& cell : blocks_) {
    if (const SlotBlock* block = cell.load(std::memory_order_acquire)) {
      total += block->slots[index].load(std::memory_order_relaxed);
    }
  }
  return total;
}

uint32_t Metrics::take_slots(uint32_t count) {
  STATOR_ASSERT(slots_used_ + count <= kSlotsMax, "too many metric series: bound the label values");
  const uint32_t first = slots_used_;
  slots_used_ += count;
  return first;
}

Metrics::Family& Metrics::family(std::string_view name, std::string_view help,
                                 std::string_view type) {
  for (const auto& family : families_) {
    if (family->name == name) {
      STATOR_ASSERT(family->type == type, "one metric name, two types");
      return *family;
    }
  }
  families_.push_back(std::make_unique<Family>());
  Family& made = *families_.back();
  made.name = name;
  made.help = help;
  made.type = type;
  return made;
}

Metrics::Series& Metrics::series(Family& family, const MetricLabels& labels) {
  std::string rendered = render_labels(labels);
  if (const auto known = family.shown.find(rendered); known != family.shown.end()) {
    return *known->second;
  }
  Series* made = nullptr;
  if (family.free.empty()) {
    made = &family.series.emplace_back();
  } else {
    made = family.free.back();
    family.free.pop_back();
    made->removed = false;
  }
  made->labels = rendered;
  family.shown.emplace(std::move(rendered), made);
  return *made;
}

void Metrics::clear_slots(uint32_t first, uint32_t count) {
  for (const auto& cell : blocks_) {
    if (SlotBlock* block = cell.load(std::memory_order_acquire)) {
      for (uint32_t i = 0; i < count; ++i) {
        block->slots[first + i].store(0, std::memory_order_relaxed);
      }
    }
  }
}

void Metrics::remove(std::string_view name, const MetricLabels& labels) {
  const MutexLock lock(mutex_);
  const auto family = std::ranges::find(
      families_, name, [](const auto& each) { return std::string_view(each->name); });
  if (family == families_.end()) {
    return;
  }
  const auto known = (*family)->shown.find(render_labels(labels));
  if (known == (*family)->shown.end()) {
    return;
  }
  Series& gone = *known->second;
  (*family)->shown.erase(known);
  (*family)->free.push_back(&gone);
  gone.removed = true;
  gone.read = nullptr;
  gone.gauge.store(0, std::memory_order_relaxed);
  if (!gone.fresh) {
    const bool is_counter = (*family)->type == "counter";
    clear_slots(gone.slot, is_counter ? 1 : static_cast<uint32_t>(gone.bounds.size()) + 2);
  }
}

Counter Metrics::counter(std::string_view name, std::string_view help, const MetricLabels& labels) {
  const MutexLock lock(mutex_);
  Series& made = series(family(name, help, "counter"), labels);
  if (made.fresh) {
    made.slot = take_slots(1);
    made.fresh = false;
  }
  return {this, made.slot};
}

Gauge Metrics::gauge(std::string_view name, std::string_view help, const MetricLabels& labels) {
  const MutexLock lock(mutex_);
  return Gauge(&series(family(name, help, "gauge"), labels).gauge);
}

Histogram Metrics::histogram(std::string_view name, std::string_view help,
                             std::span<const double> bounds, const MetricLabels& labels) {
  const MutexLock lock(mutex_);
  Series& made = series(family(name, help, "histogram"), labels);
  if (made.fresh) {
    made.bounds.assign(bounds.begin(), bounds.end());
    made.slot = take_slots(static_cast<uint32_t>(bounds.size()) + 2);
    made.fresh = false;
  }
  return {this, made.slot, made.bounds};
}

void Metrics::gauge_callback(std::string_view name, std::string_view help,
                             const MetricLabels& labels, std::function<double()> read) {
  const MutexLock lock(mutex_);
  series(family(name, help, "gauge"), labels).read = std::move(read);
}

void Metrics::counter_callback(std::string_view name, std::string_view help,
                               const MetricLabels& labels, std::function<double()> read) {
  const MutexLock lock(mutex_);
  series(family(name, help, "counter"), labels).read = std::move(read);
}

void Metrics::render_series(std::string& out, const Family& family, const Series& series) const {
  auto sink = std::back_inserter(out);
  const std::string braces = series.labels.empty() ? "" : "{" + series.labels + "}";
  if (series.read) {
    fmt::format_to(sink, "{}{} ", family.name, braces);
    return;
  }
  if (family.type == "counter") {
    fmt::format_to(sink, "{}{} {}\n", family.name, braces, sum(series.slot));
    return;
  }
  if (family.type == "gauge") {
    fmt::format_to(sink, "{}{} {}\n", family.name, braces, render_number(series.gauge.load()));
    return;
  }
  const std::string_view comma = series.labels.empty() ? "" : ",";
  uint64_t cumulative = 0;
  for (size_t i = 0; i <= series.bounds.size(); ++i) {
    cumulative += sum(series.slot + static_cast<uint32_t>(i));
    const std::string bound = i < series.bounds.size() ? render_number(series.bounds[i]) : "+Inf";
    fmt::format_to(sink, "{}_bucket{{{}{}le=\"{}\"}} {}\n", family.name, series.labels, comma,
                   bound, cumulative);
  }
  const auto sum_slot = series.slot + static_cast<uint32_t>(series.bounds.size()) + 1;
  fmt::format_to(sink, "{}_sum{} {}\n", family.name, braces,
                 render_number(static_cast<double>(sum(sum_slot)) / 1e6));
  fmt::format_to(sink, "{}_count{} {}\n", family.name, braces, cumulative);
}

std::vector<Metrics::Chunk> Metrics::render_chunks() const {
  std::vector<Chunk> chunks(1);
  for (const auto& family : families_) {
    fmt::format_to(std::back_inserter(chunks.back().text), "# HELP {} {}\n# TYPE {} {}\n",
                   family->name, family->help, family->name, family->type);
    for (const Series& series : family->series) {
      if (series.removed) {
        continue;
      }
      render_series(chunks.back().text, *family, series);
      if (series.read) {
        chunks.back().read = series.read;
        chunks.emplace_back();
      }
    }
  }
  return chunks;
}

std::string Metrics::render() const {
  std::vector<Chunk> chunks;
  {
    const MutexLock lock(mutex_);
    chunks = render_chunks();
  }
  // Callbacks take locks of their own, under which series may be registered: not under ours.
  std::string out;
  for (const Chunk& chunk : chunks) {
    out += chunk.text;
    if (chunk.read) {
      out += render_number(chunk.read()) + "\n";
    }
  }
  return out;
}

void Counter::add(uint64_t n) const {
  if (metrics_ != nullptr) {
    metrics_->slot(slot_).fetch_add(n, std::memory_order_relaxed);
  }
}

uint64_t Counter::value() const {
  return metrics_ == nullptr ? 0 : metrics_->sum(slot_);
}

void Gauge::set(double value) const {
  if (cell_ != nullptr) {
    cell_->store(value, std::memory_order_relaxed);
  }
}

void Gauge::add(double delta) const {
  if (cell_ != nullptr) {
    cell_->fetch_add(delta, std::memory_order_relaxed);
  }
}

double Gauge::value() const {
  return cell_ == nullptr ? 0 : cell_->load(std::memory_order_relaxed);
}

void Histogram::observe(double value, uint64_t times) const {
  if (metrics_ == nullptr) {
    return;
  }
  const auto bucket = static_cast<uint32_t>(
      std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
  metrics_->slot(slot_ + bucket).fetch_add(times, std::memory_order_relaxed);
  const double total = std::max(0.0, value) * 1e6 * static_cast<double>(times);
  metrics_->slot(slot_ + static_cast<uint32_t>(bounds_.size()) + 1)
      .fetch_add(static_cast<uint64_t>(total), std::memory_order_relaxed);
}

uint64_t Histogram::count() const {
  uint64_t total = 0;
  for (uint32_t i = 0; metrics_ != nullptr && i <= bounds_.size(); ++i) {
    total += metrics_->sum(slot_ + i);
  }
  return total;
}

}  // namespace stator
