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

std::string join_labels(std::string labels, std::string_view common) {
  labels += labels.empty() || common.empty() ? "" : ",";
  labels += common;
  return labels;
}

/// What the cell points at; made by the first thread that asks.
template <typename T>
T& filled(std::atomic<T*>& cell) {
  T* there = cell.load(std::memory_order_acquire);
  if (there == nullptr) [[unlikely]] {
    auto fresh = std::make_unique<T>();
    if (cell.compare_exchange_strong(there, fresh.get(), std::memory_order_acq_rel)) {
      there = fresh.release();
    }
  }
  return *there;
}

std::string render_number(double value) {
  if (std::isinf(value)) {
    return value > 0 ? "+Inf" : "-Inf";
  }
  return fmt::format("{}", value);
}

}  // namespace

/// The slots of a thread (or of several, see kThreadsMax), page by page as they are counted in.
struct Metrics::SlotBlock {
  struct Page {
    std::atomic<uint64_t> slots[kPageSlots] = {};
  };
  std::atomic<Page*> pages[kPagesMax] = {};

  ~SlotBlock() {
    for (auto& page : pages) {
      delete page.load();
    }
  }
  /// Null: nothing was counted there.
  const std::atomic<uint64_t>* find(uint32_t index) const {
    const Page* page = pages[index / kPageSlots].load(std::memory_order_acquire);
    return page == nullptr ? nullptr : &page->slots[index % kPageSlots];
  }
};

/// The last traced observation of each bucket.
struct Metrics::Exemplars {
  struct Exemplar {
    std::string trace_id;
    double value;
    double at_s;  // Unix time
  };
  Mutex mutex;
  FlatMap<uint32_t, Exemplar> by_slot STATOR_GUARDED_BY(mutex);  // bounded by the slots
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
  std::string common;  // labels that each of its series has
  std::string help;
  std::string type;
  std::deque<Series> series;  // deque: handles point into it
  FlatMap<std::string, Series*> shown;
  std::vector<Series*> free;  // removed, for reuse; in `series` all the same
};

Metrics::Metrics() : exemplars_(std::make_unique<Exemplars>()) {}

Metrics::~Metrics() {
  for (auto& block : blocks_) {
    delete block.load();
  }
}

std::atomic<uint64_t>& Metrics::slot(uint32_t index) {
  SlotBlock& block = filled(blocks_[this_thread_index(kThreadsMax)]);
  return filled(block.pages[index / kPageSlots]).slots[index % kPageSlots];
}

uint64_t Metrics::sum(uint32_t index) const {
  uint64_t total = 0;
  for (const auto& cell : blocks_) {
    const SlotBlock* block = cell.load(std::memory_order_acquire);
    if (const auto* slot = block == nullptr ? nullptr : block->find(index)) {
      total += slot->load(std::memory_order_relaxed);
    }
  }
  return total;
}

uint32_t Metrics::take_slots(uint32_t count) {
  STATOR_ASSERT(slots_used_ + count <= kPageSlots * kPagesMax,
                "too many metric series: bound the label values");
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
  for (const auto& [prefix, labels] : common_) {
    if (name.starts_with(prefix)) {
      made.common += (made.common.empty() ? "" : ",") + render_labels(labels);
    }
  }
  return made;
}

void Metrics::label_all(std::string_view name_prefix, const MetricLabels& labels) {
  const MutexLock lock(mutex_);
  common_.emplace_back(name_prefix, labels);
}

Metrics::Series& Metrics::series(Family& family, const MetricLabels& labels) {
  std::string rendered = join_labels(render_labels(labels), family.common);
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
    SlotBlock* block = cell.load(std::memory_order_acquire);
    for (uint32_t i = first; block != nullptr && i < first + count; ++i) {
      if (auto* page = block->pages[i / kPageSlots].load(std::memory_order_acquire)) {
        page->slots[i % kPageSlots].store(0, std::memory_order_relaxed);
      }
    }
  }
  const MutexLock lock(exemplars_->mutex);
  for (uint32_t i = first; i < first + count && !exemplars_->by_slot.empty(); ++i) {
    exemplars_->by_slot.erase(i);
  }
}

void Metrics::remove(std::string_view name, const MetricLabels& labels) {
  const MutexLock lock(mutex_);
  const auto family = std::ranges::find(
      families_, name, [](const auto& each) { return std::string_view(each->name); });
  if (family == families_.end()) {
    return;
  }
  const auto known = (*family)->shown.find(join_labels(render_labels(labels), (*family)->common));
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
    // All of a family have the buckets of the first one: one may have been made to choose them.
    const Series& first = family(name, help, "histogram").series.front();
    made.bounds.assign(bounds.begin(), bounds.end());
    if (!first.bounds.empty()) {
      made.bounds = first.bounds;
    }
    made.slot = take_slots(static_cast<uint32_t>(made.bounds.size()) + 2);
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

/// OpenMetrics names counters without the _total that their samples have; what has none is no
/// counter to it.
std::string family_head(std::string_view name, std::string_view help, std::string_view type,
                        Metrics::Format format) {
  if (format == Metrics::Format::kOpenMetrics && type == "counter") {
    if (name.ends_with("_total")) {
      name.remove_suffix(std::string_view("_total").size());
    } else {
      type = "unknown";
    }
  }
  return fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void Metrics::render_series(std::string& out, const Family& family, const Series& series,
                            Format format) const {
  auto sink = std::back_inserter(out);
  const std::string braces = series.labels.empty() ? "" : "{" + series.labels + "}";
  if (series.read) {
    fmt::format_to(sink, "{}{} ", family.name, braces);
  } else if (family.type == "counter") {
    fmt::format_to(sink, "{}{} {}\n", family.name, braces, sum(series.slot));
  } else if (family.type == "gauge") {
    fmt::format_to(sink, "{}{} {}\n", family.name, braces, render_number(series.gauge.load()));
  } else {
    render_histogram(out, family, series, format);
  }
}

void Metrics::render_histogram(std::string& out, const Family& family, const Series& series,
                               Format format) const {
  auto sink = std::back_inserter(out);
  const std::string braces = series.labels.empty() ? "" : "{" + series.labels + "}";
  const std::string_view comma = series.labels.empty() ? "" : ",";
  const MutexLock lock(exemplars_->mutex);
  uint64_t cumulative = 0;
  for (size_t i = 0; i <= series.bounds.size(); ++i) {
    const uint32_t slot = series.slot + static_cast<uint32_t>(i);
    cumulative += sum(slot);
    const std::string bound = i < series.bounds.size() ? render_number(series.bounds[i]) : "+Inf";
    fmt::format_to(sink, "{}_bucket{{{}{}le=\"{}\"}} {}", family.name, series.labels, comma, bound,
                   cumulative);
    if (format == Format::kOpenMetrics) {
      if (const auto known = exemplars_->by_slot.find(slot); known != exemplars_->by_slot.end()) {
        fmt::format_to(sink, " # {{trace_id=\"{}\"}} {} {:.3f}", known->second.trace_id,
                       render_number(known->second.value), known->second.at_s);
      }
    }
    out += '\n';
  }
  const auto sum_slot = series.slot + static_cast<uint32_t>(series.bounds.size()) + 1;
  fmt::format_to(sink, "{}_sum{} {}\n", family.name, braces,
                 render_number(static_cast<double>(sum(sum_slot)) / 1e6));
  fmt::format_to(sink, "{}_count{} {}\n", family.name, braces, cumulative);
}

std::vector<Metrics::Chunk> Metrics::render_chunks(Format format) const {
  std::vector<Chunk> chunks(1);
  for (const auto& family : families_) {
    chunks.back().text += family_head(family->name, family->help, family->type, format);
    for (const Series& series : family->series) {
      if (series.removed) {
        continue;
      }
      render_series(chunks.back().text, *family, series, format);
      if (series.read) {
        chunks.back().read = series.read;
        chunks.emplace_back();
      }
    }
  }
  return chunks;
}

Metrics::Format Metrics::format_for(std::string_view accept) {
  return accept.contains("application/openmetrics-text") ? Format::kOpenMetrics : Format::kText;
}

std::string_view Metrics::content_type(Format format) {
  return format == Format::kText ? kContentType
                                 : "application/openmetrics-text; version=1.0.0; charset=utf-8";
}

std::string Metrics::render(Format format) const {
  std::vector<Chunk> chunks;
  {
    const MutexLock lock(mutex_);
    chunks = render_chunks(format);
  }
  // Callbacks take locks of their own, under which series may be registered: not under ours.
  std::string out;
  for (const Chunk& chunk : chunks) {
    out += chunk.text;
    if (chunk.read) {
      out += render_number(chunk.read()) + "\n";
    }
  }
  out += format == Format::kOpenMetrics ? "# EOF\n" : "";
  return out;
}

void Counter::add(uint64_t n) const {
  if (metrics_ != nullptr && n > 0) {
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
  std::atomic<uint64_t>* const counted = &metrics_->slot(slot_ + bucket);
  counted->fetch_add(times, std::memory_order_relaxed);
  const double total = std::max(0.0, value) * 1e6 * static_cast<double>(times);
  const uint32_t sum = slot_ + static_cast<uint32_t>(bounds_.size()) + 1;
  const bool same_page = sum / Metrics::kPageSlots == (slot_ + bucket) / Metrics::kPageSlots;
  (same_page ? counted[sum - slot_ - bucket] : metrics_->slot(sum))
      .fetch_add(static_cast<uint64_t>(total), std::memory_order_relaxed);
}

void Histogram::exemplify(double value, std::string_view trace_id, WallTime at) const {
  if (metrics_ == nullptr) {
    return;
  }
  const auto bucket = static_cast<uint32_t>(
      std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
  const double at_s = std::chrono::duration<double>(at.time_since_epoch()).count();
  Metrics::Exemplars& exemplars = *metrics_->exemplars_;
  const MutexLock lock(exemplars.mutex);
  exemplars.by_slot.insert_or_assign(
      slot_ + bucket, Metrics::Exemplars::Exemplar{std::string(trace_id), value, at_s});
}

uint64_t Histogram::count() const {
  uint64_t total = 0;
  for (uint32_t i = 0; metrics_ != nullptr && i <= bounds_.size(); ++i) {
    total += metrics_->sum(slot_ + i);
  }
  return total;
}

}  // namespace stator
