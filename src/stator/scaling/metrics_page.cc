// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/metrics_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace stator::scaling {
namespace {

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == ':';
}

void skip_blanks(std::string_view& text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
}

std::string_view take_name(std::string_view& text) {
  size_t length = 0;
  while (length < text.size() && is_name(text[length])) {
    ++length;
  }
  const std::string_view name = text.substr(0, length);
  text.remove_prefix(length);
  return name;
}

/// `"…"` with \\, \" and \n.
bool take_quoted(std::string_view& text, std::string& out) {
  if (!text.starts_with('"')) {
    return false;
  }
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      text.remove_prefix(i + 1);
      return true;
    }
    if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
      out += text[i] == 'n' ? '\n' : text[i];
      continue;
    }
    out += text[i];
  }
  return false;
}

bool take_labels(std::string_view& text, Sample& sample) {
  text.remove_prefix(1);  // {
  while (true) {
    skip_blanks(text);
    if (text.starts_with('}')) {
      text.remove_prefix(1);
      return true;
    }
    const std::string_view key = take_name(text);
    skip_blanks(text);
    if (key.empty() || !text.starts_with('=')) {
      return false;
    }
    text.remove_prefix(1);
    skip_blanks(text);
    std::string value;
    if (!take_quoted(text, value)) {
      return false;
    }
    sample.labels.emplace_back(key, std::move(value));
    skip_blanks(text);
    if (text.starts_with(',')) {
      text.remove_prefix(1);
    } else if (!text.starts_with('}')) {
      return false;
    }
  }
}

bool take_number(std::string_view text, double& out) {
  const std::string_view word = text.substr(0, text.find_first_of(" \t"));
  const bool minus = word.starts_with('-');
  const std::string_view bare = word.substr(minus || word.starts_with('+') ? 1 : 0);
  if (bare == "Inf" || bare == "inf") {
    out =
        minus ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
    return true;
  }
  if (bare == "NaN" || bare == "nan") {
    out = std::nan("");
    return true;
  }
  const auto end = std::from_chars(bare.data(), bare.data() + bare.size(), out);
  out = minus ? -out : out;
  return !bare.empty() && end.ec == std::errc() && end.ptr == bare.data() + bare.size();
}

bool take_line(std::string_view line, Sample& sample) {
  sample.name = take_name(line);
  if (sample.name.empty()) {
    return false;
  }
  skip_blanks(line);
  if (line.starts_with('{') && !take_labels(line, sample)) {
    return false;
  }
  skip_blanks(line);
  return take_number(line, sample.value);
}

}  // namespace

std::string_view Sample::label(std::string_view key) const {
  for (const auto& each : labels) {
    if (each.first == key) {
      return each.second;
    }
  }
  return {};
}

MetricsPage::MetricsPage(std::vector<Sample> samples) : samples_(std::move(samples)) {
  std::ranges::sort(samples_, {}, &Sample::name);
}

Result<MetricsPage> MetricsPage::parse(std::string_view text) {
  std::vector<Sample> samples;
  size_t number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++number;
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    skip_blanks(line);
    if (line.empty() || line.starts_with('#')) {
      continue;
    }
    if (samples.size() >= kSamplesMax) {
      return Error(Code::kTooLarge, fmt::format("more than {} metrics on one page", kSamplesMax));
    }
    Sample sample;
    if (!take_line(line, sample)) {
      return Error(Code::kCorrupt, fmt::format("line {} is no metric: '{}'", number,
                                               line.substr(0, std::min<size_t>(80, line.size()))));
    }
    samples.push_back(std::move(sample));
  }
  return MetricsPage(std::move(samples));
}

void MetricsPage::each(std::string_view name,
                       const std::function<void(const Sample&)>& visit) const {
  const auto found = std::ranges::lower_bound(
      samples_, name, {}, [](const Sample& each) { return std::string_view(each.name); });
  for (auto it = found; it != samples_.end() && it->name == name; ++it) {
    visit(*it);
  }
}

std::optional<double> MetricsPage::sum(std::string_view name, const Filter& passes) const {
  std::optional<double> out;
  each(name, [&](const Sample& sample) {
    if (!passes || passes(sample)) {
      out = out.value_or(0) + sample.value;
    }
  });
  return out;
}

}  // namespace stator::scaling
