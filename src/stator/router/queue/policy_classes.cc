// SPDX-License-Identifier: Apache-2.0
#include "stator/router/queue/policy_classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

namespace stator::router {
namespace {

constexpr size_t kClassesMax = 256;
constexpr size_t kModelsMax = 1024;
constexpr size_t kNameBytesMax = 128;

Error wrong(std::string message) {
  return {Code::kInvalidArgument, "router policy: " + std::move(message)};
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameBytesMax && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  });
}

Status check_keys(const json::Value& object, std::span<const std::string_view> known,
                  std::string_view where) {
  if (!object.is_object()) {
    return wrong(fmt::format("{} must be a map", where));
  }
  for (const json::Member& member : object.members()) {
    if (std::ranges::find(known, member.key) == known.end()) {
      return wrong(fmt::format("{} has the unknown key '{}'", where, member.key));
    }
  }
  return {};
}

/// Empty where it is absent or null.
Result<std::string> read_name(const json::Value& object, std::string_view key,
                              std::string_view where) {
  const json::Value& value = object.at(key);
  if (value.is_null()) {
    return std::string();
  }
  if (!value.is_string() || !is_name(value.text())) {
    return wrong(
        fmt::format("{}.{} must be a name of letters, digits, '_', '.' and '-'", where, key));
  }
  return std::string(value.text());
}

/// `unset` where it is absent or null.
Result<double> read_number(const json::Value& object, std::string_view key, double unset,
                           std::string_view where) {
  const json::Value& value = object.at(key);
  if (value.is_null()) {
    return unset;
  }
  const auto number = value.as_double();
  if (!number || !(*number >= 0 && *number <= 1e15)) {
    return wrong(fmt::format("{}.{} must be a number of 0 or more", where, key));
  }
  return *number;
}

Result<std::optional<uint64_t>> read_limit(const json::Value& object, std::string_view key,
                                           std::string_view where) {
  const json::Value& value = object.at(key);
  if (value.is_null()) {
    return std::optional<uint64_t>();
  }
  const auto number = value.as_uint64();
  if (!number) {
    return wrong(fmt::format("{}.{} must be a whole number of 0 or more", where, key));
  }
  return number;
}

Result<PolicyClass> read_class(const json::Value& object, std::string_view where) {
  static constexpr auto kKeys = std::to_array<std::string_view>(
      {"name", "policy_family", "cache_bucket", "queue_policy", "quantum", "prefill_busy_threshold",
       "prefill_busy_threshold_frac", "request_queue_limit_per_worker",
       "raw_isl_token_queue_limit_per_worker", "cached_token_queue_limit_per_worker"});
  STATOR_CHECK(check_keys(object, kKeys, where));
  PolicyClass out;
  STATOR_TRY(out.name, read_name(object, "name", where));
  STATOR_TRY(out.family, read_name(object, "policy_family", where));
  STATOR_TRY(out.bucket, read_name(object, "cache_bucket", where));
  if (out.name.empty() || out.family.empty() != out.bucket.empty()) {
    return wrong(
        fmt::format("{} needs a name, and policy_family and cache_bucket or neither", where));
  }
  const std::string_view order = object.text_at({"queue_policy"});
  STATOR_TRY(out.order, parse_queue_order(order.empty() ? "fcfs" : order),
             fmt::format("router policy: {}.queue_policy", where));
  STATOR_TRY(const double quantum, read_number(object, "quantum", out.quantum, where));
  if (!(quantum >= 1 && quantum <= UINT32_MAX)) {
    return wrong(fmt::format("{}.quantum must be from 1 to {}", where, UINT32_MAX));
  }
  out.quantum = static_cast<uint32_t>(quantum);
  STATOR_TRY(out.wait.prefill_tokens, read_number(object, "prefill_busy_threshold", -1, where));
  STATOR_TRY(out.wait.prefill_fraction,
             read_number(object, "prefill_busy_threshold_frac", -1, where));
  STATOR_TRY(out.per_worker.requests, read_limit(object, "request_queue_limit_per_worker", where));
  STATOR_TRY(out.per_worker.prompt_tokens,
             read_limit(object, "raw_isl_token_queue_limit_per_worker", where));
  STATOR_TRY(out.per_worker.cached_tokens,
             read_limit(object, "cached_token_queue_limit_per_worker", where));
  return out;
}

Status read_buckets(const json::Value& list, PolicyConfig& out) {
  for (const json::Value& entry : list.elements()) {
    STATOR_TRY(std::string name, read_name(entry, "bucket", "uncached_isl_buckets"));
    STATOR_TRY(const auto from, read_limit(entry, "min_tokens", "uncached_isl_buckets"));
    const bool ascends =
        out.buckets.empty() ? from == uint64_t{0} : from && *from > out.buckets.back().min_tokens;
    if (name.empty() || !ascends) {
      return wrong(
          "uncached_isl_buckets must begin with min_tokens 0 and ascend, each with a "
          "bucket");
    }
    out.buckets.push_back({*from, std::move(name)});
  }
  return {};
}

/// P1
Status check_matrix(const PolicyConfig& config) {
  for (const PolicyClass& any : config.classes) {
    if (any.family.empty()) {
      continue;
    }
    for (const auto& bucket : config.buckets) {
      const auto fits = [&](const PolicyClass& each) {
        return each.family == any.family && each.bucket == bucket.name;
      };
      if (std::ranges::count_if(config.classes, fits) != 1) {
        return wrong(fmt::format("policy_family '{}' needs exactly one class for cache_bucket '{}'",
                                 any.family, bucket.name));
      }
    }
    if (std::ranges::find(config.buckets, any.bucket, &PolicyConfig::Bucket::name) ==
        config.buckets.end()) {
      return wrong(fmt::format("class '{}': no bucket is named '{}'", any.name, any.bucket));
    }
  }
  if (std::ranges::find(config.classes, config.default_family, &PolicyClass::family) ==
      config.classes.end()) {
    return wrong(fmt::format("default_policy_family '{}' has no class", config.default_family));
  }
  return {};
}

/// Other ways to choose workers than ours have no name here.
Status check_selection(const json::Value& selection) {
  for (const json::Member& member : selection.members()) {
    const bool plain =
        member.key == "instances" ? member.value.size() == 0 : member.value.text() == "default";
    if (!plain) {
      return wrong(
          fmt::format("worker_selection.{}: only 'default' is known; use --router", member.key));
    }
  }
  return {};
}

Status read_rules(const json::Value& object, PolicyConfig& out, std::string_view where) {
  STATOR_TRY(out.default_family, read_name(object, "default_policy_family", where));
  STATOR_CHECK(read_buckets(object.at("uncached_isl_buckets"), out));
  if (out.buckets.empty()) {
    out.buckets.push_back({0, "all"});
  }
  const json::Value& classes = object.at("policy_classes");
  if (!classes.is_array() || classes.size() == 0 || classes.size() > kClassesMax) {
    return wrong(
        fmt::format("{}.policy_classes must be a list of 1 to {} classes", where, kClassesMax));
  }
  for (const json::Value& entry : classes.elements()) {
    STATOR_TRY(PolicyClass read,
               read_class(entry, fmt::format("policy_classes[{}]", out.classes.size())));
    if (std::ranges::find(out.classes, read.name, &PolicyClass::name) != out.classes.end()) {
      return wrong(fmt::format("two classes are named '{}'", read.name));
    }
    out.classes.push_back(std::move(read));
  }
  return check_matrix(out);
}

constexpr auto kRuleKeys = std::to_array<std::string_view>(
    {"default_policy_family", "uncached_isl_buckets", "policy_classes"});

}  // namespace

const PolicyClass& PolicyConfig::choose(std::string_view wish, uint64_t uncached_tokens) const {
  if (const auto named = std::ranges::find(classes, wish, &PolicyClass::name);
      named != classes.end()) {
    return *named;
  }
  const bool is_family =
      !wish.empty() && std::ranges::find(classes, wish, &PolicyClass::family) != classes.end();
  const std::string_view family = is_family ? wish : std::string_view(default_family);
  const auto above = std::ranges::find_if(
      buckets, [&](const Bucket& bucket) { return bucket.min_tokens > uncached_tokens; });
  const std::string& bucket = (above - 1)->name;
  return *std::ranges::find_if(classes, [&](const PolicyClass& each) {
    return each.family == family && each.bucket == bucket;
  });
}

Result<std::shared_ptr<const PolicyConfig>> parse_policy_config(const json::Value& document) {
  static constexpr auto kKeys =
      std::to_array<std::string_view>({"default_policy_family", "uncached_isl_buckets",
                                       "policy_classes", "models", "worker_selection"});
  STATOR_CHECK(check_keys(document, kKeys, "the file"));
  auto config = std::make_shared<PolicyConfig>();
  STATOR_CHECK(read_rules(document, *config, "the file"));
  STATOR_CHECK(check_selection(document.at("worker_selection")));
  const json::Value& models = document.at("models");
  if (models.size() > kModelsMax) {
    return wrong(fmt::format("models has more than {} entries", kModelsMax));
  }
  for (const json::Member& member : models.members()) {
    const std::string where = fmt::format("models.{}", member.key);
    STATOR_CHECK(check_keys(member.value, kRuleKeys, where));
    auto own = std::make_shared<PolicyConfig>();
    STATOR_CHECK(read_rules(member.value, *own, where));
    config->models.emplace(member.key, std::move(own));
  }
  return std::shared_ptr<const PolicyConfig>(std::move(config));
}

}  // namespace stator::router
