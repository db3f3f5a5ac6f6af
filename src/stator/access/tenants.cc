// SPDX-License-Identifier: Apache-2.0
#include "stator/access/tenants.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "stator/access/detail/words.h"
#include "stator/access/key_table.h"
#include "stator/core/assert.h"

namespace stator::access {
namespace {

constexpr double kPerMinuteMax = 1e12;
constexpr double kWeightMin = 0.001;
constexpr double kWeightMax = 1000;

Status set_limit(TenantLimits& limits, std::string_view word) {
  const size_t at = word.find('=');
  const std::string_view name = word.substr(0, at);
  const std::string_view text = at == std::string_view::npos ? "" : word.substr(at + 1);
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() ||
      !std::isfinite(value) || value < 0 || value > kPerMinuteMax) {
    return Error(Code::kInvalidArgument,
                 fmt::format("'{}' must be NAME=NUMBER, a number of at most 1e12", word));
  }
  if (name == "requests_per_minute") {
    limits.requests_per_minute = value;
  } else if (name == "tokens_per_minute") {
    limits.tokens_per_minute = value;
  } else if (name == "concurrent" && value <= UINT32_MAX) {
    limits.concurrent = static_cast<uint32_t>(value);
  } else if (name == "weight" && value >= kWeightMin && value <= kWeightMax) {
    limits.weight = value;
  } else {
    return Error(Code::kInvalidArgument,
                 fmt::format("'{}' is none of requests_per_minute, tokens_per_minute, concurrent, "
                             "weight (0.001 to 1000)",
                             word));
  }
  return {};
}

}  // namespace

Result<TenantTable> TenantTable::parse(std::string_view text) {
  TenantTable table;
  detail::LineWords lines(text);
  while (lines.next()) {
    const auto words = lines.words();
    const std::string where = fmt::format("line {}", lines.number());
    TenantLimits limits;
    for (const std::string_view word : words.subspan(1)) {
      STATOR_CHECK(set_limit(limits, word), where);
    }
    if (words[0] == "*") {
      table.others_ = limits;
      continue;
    }
    STATOR_CHECK(check_tenant(words[0]), where);
    if (!table.named_.emplace(words[0], limits).second) {
      return Error(Code::kInvalidArgument,
                   fmt::format("{}: tenant {} has a line already", where, words[0]));
    }
  }
  return table;
}

const TenantLimits& TenantTable::find(std::string_view tenant) const {
  const auto known = named_.find(tenant);
  return known == named_.end() ? others_ : known->second;
}

Tenant::Tenant(std::string name, const TenantLimits& limits)
    : name_(std::move(name)),
      limits_(limits),
      requests_(limits.requests_per_minute),
      tokens_(limits.tokens_per_minute) {}

std::expected<void, OverBudget> Tenant::enter(TimePoint now) {
  const MutexLock lock(mutex_);
  // When a request under way ends is not known; most take longer than a second.
  OverBudget over{.limit = {}, .wait = std::chrono::seconds(1)};
  if (limits_.concurrent > 0 && running_ >= limits_.concurrent) {
    over.limit = "concurrent";
  } else if (!requests_.may_take(now, 1)) {
    over = {.limit = "requests_per_minute", .wait = requests_.wait(1)};
  } else if (!tokens_.may_take(now, 1)) {
    over = {.limit = "tokens_per_minute", .wait = tokens_.wait(1)};
  }
  if (!over.limit.empty()) {
    ++refused_;
    return std::unexpected(over);
  }
  if (!requests_.unlimited()) {
    requests_.take(now, 1);
  }
  ++running_;
  return {};
}

void Tenant::leave() {
  const MutexLock lock(mutex_);
  STATOR_ASSERT(running_ > 0, "a lease is given back once");
  --running_;
}

void Tenant::charge_tokens(TimePoint now, uint64_t tokens) {
  const MutexLock lock(mutex_);
  charged_ += tokens;
  if (!tokens_.unlimited()) {
    tokens_.take(now, static_cast<double>(tokens));
  }
}

void Tenant::set_limits(const TenantLimits& limits) {
  const MutexLock lock(mutex_);
  if (limits == limits_) {
    return;
  }
  limits_ = limits;
  requests_.set_rate(limits.requests_per_minute);
  tokens_.set_rate(limits.tokens_per_minute);
}

double Tenant::weight() const {
  const MutexLock lock(mutex_);
  return limits_.weight;
}

Tenant::State Tenant::state(TimePoint now) const {
  const MutexLock lock(mutex_);
  static_cast<void>(requests_.may_take(now, 0));  // counts what has come in since
  static_cast<void>(tokens_.may_take(now, 0));
  return {.limits = limits_,
          .running = running_,
          .requests_left = requests_.level(),
          .tokens_left = tokens_.level(),
          .refused = refused_,
          .tokens = charged_};
}

}  // namespace stator::access
