// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "stator/batches/batch_config.h"
#include "stator/continuity/journal_hub.h"
#include "stator/core/clock.h"
#include "stator/core/config.h"
#include "stator/frontend/moved_paths.h"
#include "stator/media/media_config.h"
#include "stator/net/http_server.h"
#include "stator/responses/response_store.h"

namespace stator::frontend {

class RequestDefaults;

/// Settings of the HTTP front door.
struct FrontendConfig {
  net::HttpServerConfig http;
  MovedPaths paths;
  /// A second port for clients of the Open Inference Protocol over gRPC, which the first serves,
  /// too.
  bool kserve_grpc_server = false;
  uint16_t kserve_grpc_port = 8787;    ///< 0: the system picks one
  uint32_t shards = 0;                 ///< 0: cores − 1, at least 1
  uint32_t inflight_max = 65536;       ///< requests per shard; beyond: overload status
  uint32_t migration_limit = 3;        ///< workers lost by one request before it fails
  uint32_t migration_max_seq_len = 0;  ///< longer prompts and outputs are not moved; 0 = no limit
  uint32_t refusals_max = 8;           ///< busy or draining workers asked for one request
  Duration migration_wait = std::chrono::seconds(10);  ///< for a worker, once the own one is lost
  uint32_t poison_workers =
      4;                       ///< workers that died under one request until it is refused; 0 = off
  Duration canary_interval{};  ///< an idle worker is asked for a token this often; 0 = never
  Duration stall_timeout =
      std::chrono::seconds(30);  ///< silence of a worker with work, then it is given up; 0 = off
  Duration accept_timeout =
      std::chrono::seconds(5);  ///< for a worker to take a request or refuse it; 0 = off
  int overload_status = 503;    ///< sent with Retry-After when everybody is busy
  Duration retry_after = std::chrono::seconds(1);
  Duration keep_alive_interval =
      std::chrono::seconds(15);  ///< SSE comment on quiet streams; 0 = off
  Duration stream_idle_timeout =
      std::chrono::seconds(600);  ///< no token for this long: failed; 0 = off
  Duration drain_timeout = std::chrono::seconds(30);
  bool strict_fields = false;  ///< unknown request fields are a 400 instead of being ignored
  /// The first line of a system prompt is dropped if coding agents change it with each request.
  bool strip_preamble = true;
  bool exclude_tools_when_none = true;  ///< tool_choice none: templates do not see the tools
  bool ignore_builtin_tools = false;    ///< leave tools that only a provider can run out
  responses::StoreConfig responses;     ///< of the Responses API
  batches::BatchConfig batches;
  media::MediaConfig media;        ///< what requests may bring beside text
  bool disable_admin_api = false;  ///< no /busy_threshold
  /// Where clients may say how they are routed: "all", "headers", "body" or "none".
  std::string trust_hints = "all";
  bool trusts_header_hints() const {
    return !disable_nvext && (trust_hints == "all" || trust_hints == "headers");
  }
  bool trusts_body_hints() const {
    return !disable_nvext && (trust_hints == "all" || trust_hints == "body");
  }
  std::string metrics_prefix = "dynamo_frontend";
  std::string histograms;  ///< NAME=MIN:MAX:COUNT with commas: buckets that are not Dynamo's
  /// Headers that begin so are handed on to workers and engines as metadata; in lower case.
  std::string metadata_header = "x-dynamo-meta-";
  bool disable_nvext = false;        ///< no nvext, no hints in headers
  bool force_include_usage = false;  ///< streams end with their usage, asked for or not
  uint32_t context_window = 0;       ///< GET /v1/models says so; 0: the model's own
  uint32_t max_output_tokens = 0;    ///< the same; 0: not said
  std::string request_template;      ///< JSON file, see RequestDefaults; empty: none
  std::shared_ptr<const RequestDefaults> request_defaults;  // what it says, with every shard
  /// Whose workers it serves: a namespace, or with '*' at its end all that begin so; empty: all.
  std::string worker_namespace;
  uint64_t answers_bytes_max = 1ULL << 30;    ///< of answers being collected, all shards together
  uint64_t text_body_bytes_max = 8ULL << 20;  ///< of /tokenize and /detokenize; beyond: 413
  /// Larger bodies are parsed, rendered and tokenized by the compute pool, not on the loop.
  uint64_t inline_body_bytes_max = 4096;
  uint32_t compute_threads = 0;  ///< 0: usable cores less the shards, at least 1
  uint32_t compute_queue_max = 4096;
  uint64_t compute_queue_bytes_max = 256ULL << 20;
  uint64_t compute_short_bytes = 256 << 10;  ///< bodies up to this have a thread of their own
  uint32_t tokenize_tokens_max = 1 << 20;    ///< of one POST /tokenize or /detokenize
  bool tokenizer_cache = true;               ///< keep the token ids of prompts' beginnings
  uint64_t tokenizer_cache_bytes = 64ULL << 20;
  std::string reasoning_field = "reasoning_content";  ///< name of that member in answers
  continuity::JournalHubConfig journals;              ///< streams that outlive this process
  std::string parser_spec;             ///< file with further parser families; empty = none
  std::string unknown_tools = "keep";  ///< calls of tools nobody declared: "keep" or "drop"
};

/// Declares them under http.* and frontend.*.
void describe(ConfigSchema& schema, FrontendConfig& config);

}  // namespace stator::frontend
