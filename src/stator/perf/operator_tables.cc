// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/operator_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "stator/json/value.h"
#include "stator/perf/parquet_file.h"

namespace stator::perf {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "doubles are written as they lie");

constexpr std::string_view kMagic = "STATOR-OPERATORS-1\n";
constexpr size_t kHeaderBytesMax = 1UL << 20;
constexpr std::string_view kNested = "aic-core/src/aiconfigurator_core/systems/data";
constexpr std::string_view kOlder = "src/aiconfigurator/systems/data";

/// Where a table lies, and its columns by their names there.
struct Layout {
  std::string_view name, family, file;
  std::vector<std::string_view> columns;
};
const Layout& layout_of(OperatorTable table) {
  static const std::array<Layout, kOperatorTables> kLayouts = {
      Layout{"gemm", "gemm", "gemm_perf", {"gemm_dtype", "m", "n", "k"}},
      Layout{"context_attention",
             "attention",
             "context_attention_perf",
             {"kv_cache_dtype", "num_heads", "num_key_value_heads", "head_dim", "window_size",
              "isl", "batch_size"}},
      Layout{"generation_attention",
             "attention",
             "generation_attention_perf",
             {"kv_cache_dtype", "num_heads", "num_key_value_heads", "head_dim", "window_size",
              "isl", "batch_size"}},
      Layout{"moe",
             "moe",
             "moe_perf",
             {"moe_dtype", "topk", "num_experts", "hidden_size", "inter_size", "moe_tp_size",
              "moe_ep_size", "num_tokens"}},
      Layout{"custom_allreduce", "comm", "custom_allreduce_perf", {"num_gpus", "message_size"}}};
  return kLayouts[static_cast<size_t>(table)];
}

/// 0.22.0 before 0.24.0, 1.2.0rc5 before 1.3.0rc10: runs of digits count as numbers.
bool older(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    const auto take = [](std::string_view& text) {
      uint64_t value = 0;
      const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
      if (end.ec != std::errc()) {
        value = (uint64_t{1} << 40U) + static_cast<unsigned char>(text.front());
        text.remove_prefix(1);
      } else {
        text.remove_prefix(static_cast<size_t>(end.ptr - text.data()));
      }
      return value;
    };
    const uint64_t x = take(a), y = take(b);
    if (x != y) {
      return x < y;
    }
  }
  return a.size() < b.size();
}

std::vector<std::string> folders_in(const fs::path& folder) {
  std::vector<std::string> out;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_directory(ignored)) {
      out.push_back(entry.path().filename().string());
    }
  }
  std::ranges::sort(out, older);
  return out;
}

/// The newest version's file; nothing if no version has it.
std::optional<fs::path> newest(const fs::path& folder, std::string_view file) {
  auto versions = folders_in(folder);
  for (auto it = versions.rbegin(); it != versions.rend(); ++it) {
    fs::path path = folder / *it / fmt::format("{}.parquet", file);
    std::error_code ignored;
    if (fs::exists(path, ignored)) {
      return path;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(OperatorTable table) {
  return layout_of(table).name;
}

size_t columns_of(OperatorTable table) {
  return layout_of(table).columns.size() + 1;
}

double OperatorTables::number_of(std::string_view dtype) {
  const auto found = std::ranges::find(dtypes_, dtype);
  if (found != dtypes_.end()) {
    return static_cast<double>(found - dtypes_.begin());
  }
  dtypes_.emplace_back(dtype);
  return static_cast<double>(dtypes_.size() - 1);
}

double OperatorTables::dtype(std::string_view name) const {
  const auto found = std::ranges::find(dtypes_, name);
  return found == dtypes_.end() ? -1 : static_cast<double>(found - dtypes_.begin());
}

void OperatorTables::load(OperatorTable table, const std::string& root, std::string_view backend) {
  const Layout& layout = layout_of(table);
  const auto path = newest(fs::path(root) / layout.family / backend, layout.file);
  if (!path) {
    notes_.push_back(fmt::format("{}: no table of {} on {}", layout.name, backend, system_));
    return;
  }
  const auto file = ParquetFile::read(path->string());
  if (!file) {
    notes_.push_back(fmt::format("{}: {}", layout.name, file.error().message()));
    return;
  }
  std::vector<std::span<const double>> numbers;
  std::vector<std::span<const std::string>> texts;
  for (const std::string_view column : layout.columns) {
    numbers.emplace_back();
    texts.emplace_back();
    if (const auto found = file->numbers(column)) {
      numbers.back() = *found;
    } else if (const auto words = file->texts(column)) {
      texts.back() = *words;
    } else if (column != "window_size") {
      notes_.push_back(fmt::format("{}: {}", layout.name, found.error().message()));
      return;
    }
  }
  const auto latency = file->numbers("latency");
  const auto step = file->numbers("step");
  if (!latency) {
    notes_.push_back(fmt::format("{}: {}", layout.name, latency.error().message()));
    return;
  }
  std::vector<double>& out = own_[static_cast<size_t>(table)];
  const bool generation = table == OperatorTable::kGeneration && step;
  for (size_t row = 0; row < file->rows(); ++row) {
    if (!std::isfinite((*latency)[row]) || !((*latency)[row] > 0)) {
      continue;
    }
    for (size_t i = 0; i < layout.columns.size(); ++i) {
      double value = !numbers[i].empty() ? numbers[i][row]
                     : !texts[i].empty() ? number_of(texts[i][row])
                                         : 0;
      value += generation && layout.columns[i] == "isl" ? (*step)[row] : 0;
      out.push_back(std::isfinite(value) ? value : 0);
    }
    out.push_back((*latency)[row]);
  }
  notes_.push_back(fmt::format("{}: {} rows of {} {}", layout.name, out.size() / columns_of(table),
                               backend, path->parent_path().filename().string()));
}

Result<std::shared_ptr<const OperatorTables>> OperatorTables::read(const std::string& folder,
                                                                   std::string_view system,
                                                                   std::string_view backend) {
  fs::path root = folder;
  std::error_code ignored;
  for (const std::string_view nested : {kNested, kOlder}) {
    if (fs::is_directory(root / nested, ignored)) {
      root /= nested;
      break;
    }
  }
  if (fs::is_directory(root / system, ignored)) {
    root /= system;
  } else if (!fs::is_directory(root, ignored)) {
    return Error(Code::kNotFound, fmt::format("'{}' is no folder", folder));
  } else if (root.filename() != system) {
    return Error(Code::kNotFound, fmt::format("'{}' has no measurements of {}; it has: {}", folder,
                                              system, fmt::join(folders_in(root), ", ")));
  }
  auto out = std::shared_ptr<OperatorTables>(new OperatorTables());
  out->system_ = system;
  out->backend_ = backend;
  size_t rows = 0;
  for (size_t i = 0; i < kOperatorTables; ++i) {
    out->load(static_cast<OperatorTable>(i), root.string(), backend);
    out->rows_[i] = out->own_[i];
    rows += out->own_[i].size();
  }
  if (rows == 0) {
    return Error(Code::kNotFound,
                 fmt::format("'{}' has no table of {} that can be read: {}", root.string(), backend,
                             fmt::join(out->notes_, "; ")));
  }
  return out;
}

std::string OperatorTables::save() const {
  json::Value header = json::Value::object();
  header["system"] = system_;
  header["backend"] = backend_;
  json::Value& dtypes = header["dtypes"] = json::Value::array();
  for (const std::string& each : dtypes_) {
    dtypes.push_back(each);
  }
  json::Value& notes = header["notes"] = json::Value::array();
  for (const std::string& each : notes_) {
    notes.push_back(each);
  }
  json::Value& counts = header["numbers"] = json::Value::array();
  for (const auto& rows : rows_) {
    counts.push_back(rows.size());
  }
  std::string out(kMagic);
  out += json::to_text(header);
  out += '\n';
  out.append((8 - out.size() % 8) % 8, '\n');  // so that doubles are aligned
  for (const auto& rows : rows_) {
    out.append(reinterpret_cast<const char*>(rows.data()), rows.size_bytes());
  }
  return out;
}

Result<std::shared_ptr<OperatorTables>> OperatorTables::decode(std::string_view bytes, Bytes kept) {
  const auto corrupt = [](std::string_view what) {
    return Error(Code::kCorrupt, fmt::format("this is no file of operator measurements: {}", what));
  };
  if (!bytes.starts_with(kMagic)) {
    return corrupt("its first line is another");
  }
  const size_t end = bytes.find('\n', kMagic.size());
  if (end == std::string_view::npos || end > kHeaderBytesMax) {
    return corrupt("its header has no end");
  }
  STATOR_TRY(const json::Value header,
             json::parse(bytes.substr(kMagic.size(), end - kMagic.size())), "its header");
  auto out = std::shared_ptr<OperatorTables>(new OperatorTables());
  out->system_ = header.text_at({"system"});
  out->backend_ = header.text_at({"backend"});
  for (const json::Value& each : header.at("dtypes").elements()) {
    out->dtypes_.emplace_back(each.text());
  }
  for (const json::Value& each : header.at("notes").elements()) {
    out->notes_.emplace_back(each.text());
  }
  size_t at = end + 1;
  at += (8 - at % 8) % 8;
  for (size_t i = 0; i < kOperatorTables; ++i) {
    const uint64_t count = header.at("numbers").at(i).as_uint64().value_or(0);
    if (at > bytes.size() || count > (bytes.size() - at) / sizeof(double) ||
        count % columns_of(static_cast<OperatorTable>(i)) != 0) {
      return corrupt("it is shorter than its header says");
    }
    if (kept == Bytes::kMapped) {  // a mapping begins at a page, so doubles in it are aligned
      out->rows_[i] = {reinterpret_cast<const double*>(bytes.data() + at), count};
    } else {
      out->own_[i].resize(count);
      if (count > 0) {
        std::memcpy(out->own_[i].data(), bytes.data() + at, count * sizeof(double));
      }
      out->rows_[i] = out->own_[i];
    }
    at += count * sizeof(double);
  }
  return out;
}

Result<std::shared_ptr<const OperatorTables>> OperatorTables::parse(std::string_view bytes) {
  STATOR_TRY(auto out, decode(bytes, Bytes::kCopied));
  return out;
}

Result<std::shared_ptr<const OperatorTables>> OperatorTables::open(const std::string& path) {
  STATOR_TRY(io::MappedFile file, io::MappedFile::open(path));
  const auto mapping = std::make_shared<io::MappedFile>(std::move(file));
  const std::string_view bytes(reinterpret_cast<const char*>(mapping->bytes().data()),
                               mapping->bytes().size());
  STATOR_TRY(auto out, decode(bytes, Bytes::kMapped), path);
  out->file_ = mapping;
  return out;
}

}  // namespace stator::perf
