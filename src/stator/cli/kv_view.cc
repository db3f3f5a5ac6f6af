// SPDX-License-Identifier: Apache-2.0
#include "stator/cli/kv_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "stator/cli/operator_listener.h"

namespace stator::cli {
namespace {

constexpr int kBarWidth = 40;
constexpr std::string_view kOrder[] = {"device", "host", "disk", "store", "object"};

/// The value of a label of a metric line; empty if it has none.
std::string_view label(std::string_view line, std::string_view name) {
  const std::string wanted = fmt::format("{}=\"", name);
  const size_t at = line.find(wanted);
  if (at == std::string_view::npos) {
    return {};
  }
  const std::string_view rest = line.substr(at + wanted.size());
  return rest.substr(0, rest.find('"'));
}

double value(std::string_view line) {
  const std::string_view text = line.substr(line.rfind(' ') + 1);
  double out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

}  // namespace

std::string draw_tiers(const std::vector<TierUse>& tiers) {
  std::string out;
  for (const TierUse& tier : tiers) {
    const double share = tier.blocks_max > 0 ? std::min(1.0, tier.blocks / tier.blocks_max) : 0;
    const auto full = static_cast<int>(share * kBarWidth + 0.5);
    const std::string most =
        tier.blocks_max > 0 ? fmt::format(" of {:.0f}", tier.blocks_max) : std::string();
    out += fmt::format("{:<7} [{}{}] {:>3.0f} %  {:.0f}{} blocks, {:.1f} MiB{}{}\n", tier.tier,
                       std::string(full, '#'), std::string(kBarWidth - full, '.'), share * 100,
                       tier.blocks, most, tier.bytes / (1 << 20),
                       tier.integrity_errors > 0
                           ? fmt::format(", {:.0f} damaged blocks found", tier.integrity_errors)
                           : std::string(),
                       tier.enabled ? "" : ", switched off: see the server's log");
  }
  return out;
}

ServerTiers read_tiers(std::string_view page) {
  ServerTiers out;
  const auto tier_of = [&](std::string_view name) -> TierUse& {
    const auto found = std::ranges::find(out.tiers, name, &TierUse::tier);
    return found != out.tiers.end() ? *found
                                    : out.tiers.emplace_back(TierUse{.tier = std::string(name)});
  };
  while (!page.empty()) {
    const std::string_view line = page.substr(0, page.find('\n'));
    page.remove_prefix(std::min(page.size(), line.size() + 1));
    const std::string_view name = line.substr(0, line.find_first_of("{ "));
    const std::string_view tier = label(line, "tier");
    if (!name.starts_with("stator_kv_") || tier.empty()) {
      continue;
    }
    if (name == "stator_kv_tier_blocks") {
      tier_of(tier).blocks += value(line);
    } else if (name == "stator_kv_tier_blocks_max") {
      tier_of(tier).blocks_max += value(line);
    } else if (name == "stator_kv_tier_bytes") {
      tier_of(tier).bytes += value(line);
    } else if (name == "stator_kv_integrity_errors_total") {
      tier_of(tier).integrity_errors += value(line);
    } else if (name == "stator_kv_tier_enabled") {
      tier_of(tier).enabled = value(line) > 0;
    } else if (name == "stator_kv_tier_info") {
      out.disk_folder = label(line, "folder");
    }
  }
  std::ranges::sort(out.tiers, {}, [](const TierUse& tier) {
    return std::ranges::find(kOrder, tier.tier) - std::begin(kOrder);
  });
  return out;
}

Result<ServerTiers> fetch_tiers(const std::string& url, const net::HttpHeaderList& headers) {
  std::string base = url;
  while (base.ends_with('/')) {
    base.pop_back();
  }
  STATOR_TRY(const auto answer, net::http_request({.url = base + "/metrics", .headers = headers}));
  if (wants_operator(answer.status)) {
    return Error(Code::kNotFound,
                 fmt::format("{}/metrics answers {}: {}", base, answer.status, kOperatorHint));
  }
  ServerTiers tiers = read_tiers(answer.body);
  if (answer.status != 200 || tiers.tiers.empty()) {
    return Error(Code::kNotFound,
                 fmt::format("{}/metrics says nothing of KV blocks: give the address of `stator "
                             "serve`, or of a worker's --system-port",
                             base));
  }
  return tiers;
}

}  // namespace stator::cli
