// SPDX-License-Identifier: Apache-2.0
#include "stator/app/planner_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include "stator/io/read_file.h"
#include "stator/kube/yaml.h"

namespace stator::app {
namespace {

constexpr uint64_t kFileBytesMax = 1UL << 20;

/// Keys that are read elsewhere (scheduling, reports), or say nothing here: Stator prices passes by
/// --timing, and has no sweeps before it starts.
constexpr std::string_view kElsewhere[] = {"isl",
                                           "osl",
                                           "max_num_fpm_samples",
                                           "load_min_observations",
                                           "prophet_window_size",
                                           "speculative_nextn",
                                           "profile_results_dir",
                                           "live_dashboard_port",
                                           "control_api_port",
                                           "plugin_registration",
                                           "scheduling",
                                           "log_dir",
                                           "aic_interpolation",
                                           "aic_perf_model",
                                           "metric_reporting_prometheus_port",
                                           "metric_pulling_prometheus_ssl_verify",
                                           "metric_pulling_prometheus_extra_query_params",
                                           "global_planner_namespace",
                                           "report_interval_hours",
                                           "report_output_dir",
                                           "report_filename",
                                           "report_write_gzip_log"};

Error refuse(std::string_view key, std::string_view what) {
  return Error(Code::kInvalidArgument, fmt::format("{} {}", key, what));
}

struct NumberKey {
  std::string_view name;
  double least = 0, most = 1e12;
  double* field = nullptr;
};

struct CountKey {
  std::string_view name;
  int64_t least = 0, most = 0;
};

/// One file of the reference, key by key.
class FileReader {
 public:
  FileReader(const json::Value& file, planner::PlannerConfig& config, PlannerFileFacts& facts)
      : file_(file), config_(config), facts_(facts) {}

  Status read() {
    for (const auto& [key, value] : file_.members()) {
      if (!value.is_null()) {
        STATOR_CHECK(read_key(key, value));
      }
    }
    STATOR_CHECK(check());
    config_.power.limit_watts = by_power_ ? power_limit_ : config_.power.limit_watts;
    const bool sla = target_ == "sla";
    if (!policy_given_) {
      config_.policy = !sla || (by_load_ && !by_forecast_) ? planner::PolicyKind::kLoad
                       : by_load_                          ? planner::PolicyKind::kReference
                                                           : planner::PolicyKind::kThroughput;
    }
    STATOR_TRY(config_.target, planner::find_target(target_), "optimization_target");
    fill_pools();
    return {};
  }

 private:
  Status read_key(const std::string& key, const json::Value& value) {
    planner::PlannerConfig& c = config_;
    constexpr double kDay_s = 86'400, kLeast = 1e-9;
    const NumberKey numbers[] = {
        {"ttft_ms", kLeast, 1e9, &c.ttft_ms},
        {"ttft", kLeast, 1e9, &c.ttft_ms},
        {"itl_ms", kLeast, 1e9, &c.itl_ms},
        {"itl", kLeast, 1e9, &c.itl_ms},
        {"throughput_adjustment_interval_seconds", kLeast, kDay_s, &c.throughput_interval_s},
        {"throughput_adjustment_interval", kLeast, kDay_s, &c.throughput_interval_s},
        {"load_adjustment_interval_seconds", kLeast, kDay_s, &c.load_interval_s},
        {"load_adjustment_interval", kLeast, kDay_s, &c.load_interval_s},
        {"load_scaling_down_sensitivity", 0, 100, &c.scale_down_sensitivity},
        {"kalman_q_level", 0, 1e12, &c.predictor.kalman_q_level},
        {"kalman_q_trend", 0, 1e12, &c.predictor.kalman_q_trend},
        {"kalman_r", 0, 1e12, &c.predictor.kalman_r},
        {"prefill_scale_up_queue_tokens", 0, 1e12, &c.easy.prefill_up},
        {"prefill_scale_down_queue_tokens", 0, 1e12, &c.easy.prefill_down},
        {"decode_scale_up_kv_rate", 0, 100, &c.easy.decode_up},
        {"decode_scale_down_kv_rate", 0, 100, &c.easy.decode_down},
        {"start_up_seconds", 0, kDay_s, &c.start_up_s},
        {"total_gpu_power_limit", 1, 1e12, &power_limit_},
        {"prefill_power_watts_per_replica", 0, 1e9, &c.power.prefill_watts},
        {"decode_power_watts_per_replica", 0, 1e9, &c.power.decode_watts}};
    for (const NumberKey& number : numbers) {
      if (key == number.name) {
        const auto got = value.as_double();
        if (!got || !(*got >= number.least && *got <= number.most)) {
          return refuse(key, fmt::format("must be a number from {} to {}, is {}", number.least,
                                         number.most, json::to_text(value)));
        }
        *number.field = *got;
        return {};
      }
    }
    return read_count(key, value);
  }

  Status read_count(const std::string& key, const json::Value& value) {
    constexpr int64_t kMany = 1'000'000;
    const std::pair<CountKey, int64_t*> counts[] = {
        {{"min_endpoint", 0, 4096}, &least_},
        {{"prefill_min_endpoint", 1, 4096}, &least_prefill_},
        {{"decode_min_endpoint", 1, 4096}, &least_decode_},
        {{"max_gpu_budget", -1, kMany}, &most_gpus_},
        {{"min_gpu_budget", -1, kMany}, &least_gpus_},
        {{"prefill_engine_num_gpu", 1, 1024}, &prefill_gpus_},
        {{"decode_engine_num_gpu", 1, 1024}, &decode_gpus_},
        {{"kalman_min_points", 1, 1000}, &kalman_points_},
        {{"fpm_sample_bucket_size", 1, kMany}, &buckets_}};
    for (const auto& [of, field] : counts) {
      if (key == of.name) {
        const auto got = value.as_double();
        if (!got || *got != std::floor(*got) || *got < static_cast<double>(of.least) ||
            *got > static_cast<double>(of.most)) {
          return refuse(key, fmt::format("must be a whole number from {} to {}, is {}", of.least,
                                         of.most, json::to_text(value)));
        }
        *field = static_cast<int64_t>(*got);
        return {};
      }
    }
    return read_flag(key, value);
  }

  Status read_flag(const std::string& key, const json::Value& value) {
    const std::pair<std::string_view, bool*> flags[] = {
        {"enable_throughput_scaling", &by_forecast_},
        {"enable_load_scaling", &by_load_},
        {"enable_power_awareness", &by_power_},
        {"advisory", &facts_.advisory},
        {"load_predictor_log1p", &config_.predictor.log1p}};
    for (const auto& [name, field] : flags) {
      if (key == name) {
        const bool yes = value.as_bool().value_or(false) || value.text() == "true";
        if (!yes && value.as_bool() != false && value.text() != "false") {
          return refuse(key, fmt::format("must be true or false, is {}", json::to_text(value)));
        }
        *field = yes;
        return {};
      }
    }
    return read_choice(key, value);
  }

  Status read_choice(const std::string& key, const json::Value& value) {
    struct Choice {
      std::string_view name;
      std::initializer_list<std::string_view> words;
      std::string* field;
    };
    std::string source, unused;
    const Choice choices[] = {
        {"environment", {"kubernetes", "virtual", "global-planner"}, &environment_},
        {"mode", {"disagg", "prefill", "decode", "agg"}, &mode_},
        {"backend", {"vllm", "sglang", "trtllm", "mocker"}, &unused},
        {"optimization_target", {"throughput", "latency", "load", "sla"}, &target_},
        {"throughput_metrics_source", {"frontend", "router"}, &source},
        {"pre_deployment_sweeping_mode", {"none", "rapid", "thorough"}, &unused}};
    for (const Choice& choice : choices) {
      if (key != choice.name) {
        continue;
      }
      if (std::ranges::find(choice.words, value.text()) == choice.words.end()) {
        return refuse(key, fmt::format("must be {}, is {}", fmt::join(choice.words, " or "),
                                       json::to_text(value)));
      }
      *choice.field = value.text();
      facts_.from_router = facts_.from_router || source == "router";
      return {};
    }
    return read_word(key, value);
  }

  Status read_word(const std::string& key, const json::Value& value) {
    const std::string text(value.text());
    const std::pair<std::string_view, std::string*> words[] = {
        {"metric_pulling_prometheus_endpoint", &facts_.prometheus},
        {"metric_pulling_prometheus_token", &facts_.prometheus_token},
        {"metric_pulling_prometheus_token_file", &facts_.prometheus_token_file},
        {"metric_pulling_prometheus_ca_bundle", &facts_.prometheus_ca},
        {"model_name", &facts_.model},
        {"namespace", &facts_.name_space},
        {"load_predictor_warmup_trace", &facts_.warmup_trace}};
    for (const auto& [name, field] : words) {
      if (key == name) {
        *field = text;
        return {};
      }
    }
    if (key == "load_predictor") {
      return planner::choose_predictor(text, config_.predictor);
    }
    if (key == "policy") {
      policy_given_ = true;
      return planner::parse_policy(text, config_);
    }
    if (std::ranges::find(kElsewhere, key) == std::end(kElsewhere)) {
      return Error(Code::kInvalidArgument, fmt::format("'{}' is no key of a planner", key));
    }
    return {};
  }

  /// What the reference's own checks say of keys together.
  Status check() const {
    const bool sla = target_ == "sla";
    if (sla && !by_forecast_ && !by_load_) {
      return Error(Code::kInvalidArgument,
                   "one of enable_throughput_scaling and enable_load_scaling must be true");
    }
    if (by_power_ && power_limit_ < 0) {
      return refuse("enable_power_awareness", "needs total_gpu_power_limit, in watts");
    }
    if (by_power_ && mode_ == "agg") {
      return refuse("enable_power_awareness", "is not supported with mode 'agg'");
    }
    if (by_power_ && !environment_.empty() && environment_ != "kubernetes") {
      return refuse("enable_power_awareness", "requires environment 'kubernetes'");
    }
    if (environment_ == "global-planner" && file_.text_at({"global_planner_namespace"}).empty()) {
      return refuse("global_planner_namespace", "is required with environment 'global-planner'");
    }
    if ((least_prefill_ >= 0 && (mode_ == "decode" || mode_ == "agg")) ||
        (least_decode_ >= 0 && (mode_ == "prefill" || mode_ == "agg"))) {
      return refuse(least_prefill_ >= 0 && mode_ != "prefill" ? "prefill_min_endpoint"
                                                              : "decode_min_endpoint",
                    fmt::format("is not supported with mode '{}'; use min_endpoint", mode_));
    }
    const auto root = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(buckets_))));
    if (root * root != buckets_) {
      return refuse("fpm_sample_bucket_size",
                    fmt::format("must be a perfect square, is {}", buckets_));
    }
    const bool prompts = mode_ == "disagg" || mode_ == "prefill";
    if (target_ == "load" && prompts && !(config_.easy.prefill_up > config_.easy.prefill_down)) {
      return refuse("prefill_scale_up_queue_tokens",
                    "must be above prefill_scale_down_queue_tokens with optimization_target load");
    }
    return {};
  }

  void fill_pools() {
    planner::PlannerConfig& c = config_;
    const auto set = [](int64_t value, auto& field) {
      field = value < 0 ? field : static_cast<std::remove_reference_t<decltype(field)>>(value);
    };
    set(least_, c.min_workers);
    set(kalman_points_, c.predictor.kalman_min_points);
    const int64_t unset = -2;
    c.max_gpu_budget = most_gpus_ == unset ? c.max_gpu_budget : static_cast<int32_t>(most_gpus_);
    c.min_gpu_budget = least_gpus_ == unset ? c.min_gpu_budget : static_cast<int32_t>(least_gpus_);
    c.split = mode_ == "disagg";
    const bool prompts_only = mode_ == "prefill";
    set(prompts_only ? least_prefill_ : least_decode_, c.min_workers);
    set(prompts_only ? prefill_gpus_ : decode_gpus_, c.gpus_per_worker);
    if (!prompts_only) {
      set(prefill_gpus_, c.prefill_gpus_per_worker);
      set(least_prefill_ < 0 && least_decode_ >= 0 ? least_ : least_prefill_,
          c.prefill_min_workers);
    }
  }

  const json::Value& file_;
  planner::PlannerConfig& config_;
  PlannerFileFacts& facts_;
  std::string target_ = "throughput", mode_, environment_;
  double power_limit_ = -1;
  int64_t least_ = -1, least_prefill_ = -1, least_decode_ = -1;
  int64_t most_gpus_ = -2, least_gpus_ = -2, prefill_gpus_ = -1, decode_gpus_ = -1;
  int64_t kalman_points_ = -1, buckets_ = 16;
  bool by_forecast_ = true, by_load_ = false, by_power_ = false, policy_given_ = false;
};

}  // namespace

Result<json::Value> read_planner_map(const std::string& text) {
  const bool inline_json = text.find_first_not_of(" \t\r\n") != std::string::npos &&
                           text[text.find_first_not_of(" \t\r\n")] == '{';
  const std::string name = inline_json ? "--planner-config" : text;
  std::string content = text;
  if (!inline_json) {
    STATOR_TRY(content, io::read_file(text, kFileBytesMax), "--planner-config");
  }
  STATOR_TRY(auto documents, kube::parse_yaml(content, name), "--planner-config");
  if (documents.size() != 1 || !documents.front().is_object()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--planner-config {}: it must be one map of keys", name));
  }
  return std::move(documents.front());
}

Status read_planner_file(const std::string& text, planner::PlannerConfig& config,
                         PlannerFileFacts* facts) {
  STATOR_TRY(const json::Value file, read_planner_map(text));
  PlannerFileFacts unused;
  STATOR_CHECK(FileReader(file, config, facts == nullptr ? unused : *facts).read(),
               text.size() < 256 ? text : std::string("--planner-config"));
  return {};
}

}  // namespace stator::app
