// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/measured_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "stator/perf/parquet_file.h"

namespace stator::perf {
namespace {

/// How many of the nearest weight shapes an unmeasured one is estimated from.
constexpr size_t kNeighbours = 4;
/// Time cannot be shorter than the speed of light, nor is a kernel slower than this part of it
/// unless its start is all there is.
constexpr double kUtilisationMax = 1;

/// The only folder in `folder`, or an error that lists what is there.
Result<std::string> only_version(const std::filesystem::path& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    found.push_back(entry.path().filename().string());
  }
  if (found.size() == 1) {
    return found.front();
  }
  std::ranges::sort(found);
  return Error(Code::kNotFound,
               fmt::format("'{}' has {} versions ({}); name one, as backend=FRAMEWORK/VERSION",
                           folder.string(), found.size(), fmt::join(found, ", ")));
}

/// Tables lie in FOLDER/FAMILY/BACKEND/, in older databases in FOLDER/BACKEND/.
Result<ParquetFile> open_table(const MeasuredSource& source, std::string_view family,
                               std::string_view name) {
  namespace fs = std::filesystem;
  const fs::path root(source.folder);
  const fs::path base =
      fs::is_directory(root / family) ? root / family / source.backend : root / source.backend;
  fs::path folder = base;
  if (source.backend.find('/') == std::string::npos) {
    STATOR_TRY(const std::string version, only_version(base));
    folder /= version;
  }
  return ParquetFile::read((folder / fmt::format("{}.parquet", name)).string());
}

/// Rows whose latency can be used.
bool is_time(double latency) {
  return std::isfinite(latency) && latency > 0;
}

Error no_rows(std::string_view table, std::string_view wanted, const std::set<std::string>& seen) {
  return {Code::kNotFound, fmt::format("{} was not measured for {}; it was for: {}", table, wanted,
                                       fmt::join(seen, "; "))};
}

}  // namespace

void UtilisationGrid::add(double x, double y, double utilisation) {
  const double log_x = std::log(x), log_y = std::log(y);
  auto row = std::ranges::lower_bound(rows_, log_x, {}, &Row::log_x);
  if (row == rows_.end() || row->log_x != log_x) {
    row = rows_.insert(row, {.log_x = log_x, .samples = {}});
  }
  auto sample = std::ranges::lower_bound(row->samples, log_y, {}, &Sample::log_y);
  const double value = std::log(std::min(utilisation, kUtilisationMax));
  if (sample == row->samples.end() || sample->log_y != log_y) {
    row->samples.insert(sample, {.log_y = log_y, .log_utilisation = value});
  } else {
    sample->log_utilisation = std::max(sample->log_utilisation, value);  // the fastest kernel
  }
}

// Between two samples utilisation is a power of the size: where work grows like one, so does the
// time, and it never turns back between two that do not.
double UtilisationGrid::on(const Row& row, double log_y) {
  const std::vector<Sample>& all = row.samples;
  const auto high = std::ranges::lower_bound(all, log_y, {}, &Sample::log_y);
  if (high == all.begin() || (high != all.end() && high->log_y == log_y)) {
    return high->log_utilisation;
  }
  const auto low = std::prev(high);
  if (high == all.end()) {
    return low->log_utilisation;
  }
  return std::lerp(low->log_utilisation, high->log_utilisation,
                   (log_y - low->log_y) / (high->log_y - low->log_y));
}

double UtilisationGrid::at(double x, double y) const {
  return at_logs(std::log(x), std::log(y));
}

double UtilisationGrid::at_logs(double log_x, double log_y) const {
  const auto high = std::ranges::lower_bound(rows_, log_x, {}, &Row::log_x);
  if (high == rows_.begin() || (high != rows_.end() && high->log_x == log_x)) {
    return std::exp(on(*high, log_y));
  }
  const auto low = std::prev(high);
  if (high == rows_.end()) {
    return std::exp(on(*low, log_y));
  }
  return std::exp(std::lerp(on(*low, log_y), on(*high, log_y),
                            (log_x - low->log_x) / (high->log_x - low->log_x)));
}

Result<std::shared_ptr<const MeasuredCosts>> MeasuredCosts::read(const MeasuredSource& source,
                                                                 const SpeedOfLight& light) {
  std::shared_ptr<MeasuredCosts> costs(new MeasuredCosts(light));
  STATOR_CHECK(costs->read_gemms(source));
  STATOR_CHECK(costs->read_attention(source, false));
  STATOR_CHECK(costs->read_attention(source, true));
  return std::shared_ptr<const MeasuredCosts>(std::move(costs));
}

Status MeasuredCosts::read_gemms(const MeasuredSource& source) {
  STATOR_TRY(const ParquetFile table, open_table(source, "gemm", "gemm_perf"));
  STATOR_TRY(const auto types, table.texts("gemm_dtype"));
  STATOR_TRY(const auto m, table.numbers("m"));
  STATOR_TRY(const auto n, table.numbers("n"));
  STATOR_TRY(const auto k, table.numbers("k"));
  STATOR_TRY(const auto latency, table.numbers("latency"));
  std::map<std::pair<double, double>, UtilisationGrid> sites;
  std::set<std::string> seen;
  for (size_t i = 0; i < table.rows(); ++i) {
    seen.insert(types[i]);
    if (types[i] == name_of(source.weights) && is_time(latency[i]) && m[i] > 0) {
      sites[{n[i], k[i]}].add(m[i], 1, light_.gemm_ms(m[i], n[i], k[i]) / latency[i]);
    }
  }
  if (sites.empty()) {
    return no_rows("gemm_perf", fmt::format("gemm_dtype {}", name_of(source.weights)), seen);
  }
  for (auto& [shape, grid] : sites) {
    sites_.push_back({shape.first, shape.second, std::move(grid)});
  }
  return {};
}

Status MeasuredCosts::read_attention(const MeasuredSource& source, bool generation) {
  const std::string_view name = generation ? "generation_attention_perf" : "context_attention_perf";
  STATOR_TRY(const ParquetFile table, open_table(source, "attention", name));
  STATOR_TRY(const auto kv_types, table.texts("kv_cache_dtype"));
  STATOR_TRY(const auto heads, table.numbers("num_heads"));
  STATOR_TRY(const auto kv_heads, table.numbers("num_key_value_heads"));
  STATOR_TRY(const auto head_dim, table.numbers("head_dim"));
  STATOR_TRY(const auto batch, table.numbers("batch_size"));
  STATOR_TRY(const auto isl, table.numbers("isl"));
  STATOR_TRY(const auto latency, table.numbers("latency"));
  std::span<const double> step;
  if (generation) {
    STATOR_TRY(step, table.numbers("step"));
  }
  std::span<const double> window;
  if (table.has("window_size")) {
    STATOR_TRY(window, table.numbers("window_size"));
  }
  const AttentionShape& wanted = source.attention;
  UtilisationGrid& grid = generation ? generation_ : context_;
  std::set<std::string> seen;
  for (size_t i = 0; i < table.rows(); ++i) {
    const bool windowed = !window.empty() && window[i] > 0;
    if (windowed || !is_time(latency[i]) || !(batch[i] > 0) || !(isl[i] > 0)) {
      continue;
    }
    // A table may write "as many as heads" as zero.
    const double of_kv = kv_heads[i] == 0 ? heads[i] : kv_heads[i];
    if (heads[i] != wanted.heads || of_kv != wanted.kv_heads || head_dim[i] != wanted.head_dim ||
        kv_types[i] != name_of(source.kv)) {
      seen.insert(
          fmt::format("{}/{} heads of {} with {}", heads[i], of_kv, head_dim[i], kv_types[i]));
      continue;
    }
    if (generation) {
      const double context = isl[i] + step[i];
      grid.add(context, batch[i],
               light_.generation_attention_ms(wanted, batch[i], context) / latency[i]);
    } else {
      grid.add(isl[i], batch[i],
               light_.context_attention_ms(wanted, batch[i], isl[i], 0) / latency[i]);
    }
  }
  if (grid.empty()) {
    return no_rows(name,
                   fmt::format("{}/{} heads of {} with {} KV", wanted.heads, wanted.kv_heads,
                               wanted.head_dim, name_of(source.kv)),
                   seen);
  }
  return {};
}

double MeasuredCosts::gemm_ms(double m, double n, double k) const {
  // Weighted by closeness in log2 of both sides; a measured shape alone decides about itself.
  std::vector<std::pair<double, const Site*>> near;
  near.reserve(sites_.size());
  for (const Site& site : sites_) {
    near.emplace_back(std::hypot(std::log2(site.n / n), std::log2(site.k / k)), &site);
  }
  const size_t count = std::min(kNeighbours, near.size());
  std::ranges::partial_sort(near, near.begin() + static_cast<ptrdiff_t>(count));
  if (near.front().first == 0) {
    return light_.gemm_ms(m, n, k) / near.front().second->by_rows.at(m, 1);
  }
  double weights = 0;
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto& [distance, site] = near[i];
    const double weight = 1 / (distance * distance);
    weights += weight;
    sum += weight * site->by_rows.at(m, 1);
  }
  return light_.gemm_ms(m, n, k) / (sum / weights);
}

double MeasuredCosts::context_attention_ms(const AttentionShape& shape, double batch,
                                           double new_tokens, double prefix) const {
  return light_.context_attention_ms(shape, batch, new_tokens, prefix) /
         context_.at(new_tokens + prefix, batch);
}

double MeasuredCosts::generation_attention_ms(const AttentionShape& shape, double batch,
                                              double context) const {
  return light_.generation_attention_ms(shape, batch, context) / generation_.at(context, batch);
}

double MeasuredCosts::all_reduce_ms(double elements, uint32_t ranks) const {
  return rest_.all_reduce_ms(elements, ranks);
}

double MeasuredCosts::small_ms(double bytes) const {
  return rest_.small_ms(bytes);
}

}  // namespace stator::perf
