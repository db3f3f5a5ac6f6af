// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/config.h"
#include "stator/core/result.h"
#include "stator/lab/loadgen/measure.h"
#include "stator/lab/loadgen/run_service.h"

namespace stator::loadgen {

/// What `stator bench` can be told. describe() declares flag, limits and help of each field.
struct BenchConfig {
  std::string url = "http://127.0.0.1:8000";
  std::string model;
  std::string endpoint_type = "chat";
  std::string endpoint;
  std::string api_key;
  std::string header;
  std::string extra_body;
  bool no_stream = false;
  bool no_usage = false;
  bool ignore_eos = false;
  std::string tls_ca;
  bool tls_insecure = false;

  uint32_t concurrency = 0;
  double rate = 0;
  std::string arrivals = "poisson";
  double burstiness = 1;
  Duration ramp{};
  uint64_t requests = 0;
  Duration duration{};
  uint32_t in_flight_max = 0;
  uint32_t backlog_max = 100'000;
  double cancel_percent = 0;
  Duration cancel_after{};
  Duration request_timeout = std::chrono::minutes(10);
  Duration drain_timeout = std::chrono::seconds(30);
  bool no_keep_alive = false;
  uint32_t threads = 1;
  uint64_t seed = 1;

  uint32_t input_tokens = 128;
  double input_tokens_std = 0;
  uint32_t output_tokens = 64;
  double output_tokens_std = 0;
  uint32_t prefix_tokens = 0;
  uint32_t prefix_groups = 1;
  uint32_t turns = 1;
  double turns_std = 0;
  Duration turn_delay{};
  uint64_t distinct_prompts = 0;
  std::string tokenizer;
  std::string trace;
  uint32_t trace_block_tokens = 512;
  double trace_speed = 1;
  uint64_t trace_rows_max = 5'000'000;
  std::string bodies;

  std::string warmup;
  uint64_t warmup_requests = 0;
  std::string goodput;
  uint32_t runs = 1;
  std::string sweep;
  double sweep_rate_max = 100'000;
  uint64_t records_max = 4'000'000;
  uint64_t failures_max = 1000;
  bool allow_client_bound = false;
  std::string json;
  std::string csv;
  std::string html;
};

/// Declares every field; `config` must outlive the schema.
void describe(ConfigSchema& schema, BenchConfig& config);

/// What the fields mean together. kInvalidArgument for combinations that make no sense.
struct BenchPlan {
  LoadMode mode = LoadMode::kClosed;
  ArrivalPattern pattern = ArrivalPattern::kPoisson;
  WarmUp warm_up;
  Goals goals;
  std::vector<double> rates;     ///< of a sweep in given steps
  bool find_saturation = false;  ///< a sweep that searches
  uint64_t requests = 0;
  uint32_t connections = 1;  ///< most requests in flight, of all threads
};
Result<BenchPlan> make_plan(const BenchConfig& config);

}  // namespace stator::loadgen
