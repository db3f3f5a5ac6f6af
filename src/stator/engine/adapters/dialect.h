// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/engine/adapters/control.h"
#include "stator/engine/adapters/raise.h"
#include "stator/engine/api/engine.h"
#include "stator/net/http_client.h"

namespace stator::tokenizer {
class Tokenizer;
}

namespace stator::engine::adapters {

// How Stator speaks to one kind of engine server. A dialect is a set of pure functions: requests
// to HTTP calls (lowering), bytes to tokens (raising), descriptions and metrics to facts. No I/O,
// no clock, no lock; adapter_service.cc is the only shell. Rules for all of them: unknown JSON keys
// are ignored, nothing a client asked for is dropped silently, and what an engine cannot do is
// refused before it is sent.

/// Where an engine publishes its KV events: one publisher per data-parallel rank.
struct KvEventSource {
  uint32_t dp_rank = 0;
  std::string endpoint;         ///< "tcp://host:port", host already made reachable
  std::string replay_endpoint;  ///< empty = none
  std::string topic;
  friend bool operator==(const KvEventSource&, const KvEventSource&) = default;
};

/// What an engine server says about itself. 0 and empty = it does not say.
struct EngineFacts {
  std::string version;
  std::string model;       ///< the name it wants in requests
  std::string model_root;  ///< folder or hub name it loaded
  uint32_t block_size = 0;
  uint32_t total_blocks = 0;
  uint32_t max_model_len = 0;
  uint32_t max_num_seqs = 0;
  uint32_t dp_size = 1;  ///< data-parallel ranks, each with `total_blocks` of its own
  std::vector<KvEventSource> kv_sources;
  std::optional<inference::WorkerRole>
      role;                           ///< in a fleet that is split into prefill and decode servers
  uint16_t bootstrap_port = 0;        ///< where such servers meet
  bool keeps_seeds = true;            ///< false: it takes a seed, but draws as it likes
  std::vector<std::string> adapters;  ///< LoRA adapters it has loaded, sorted
  inference::HandoffAbility handoff;  ///< of make_ability(), not the server's word
  bool generates = true;              ///< false: it says that it only pools
  inference::PoolTasks pool_tasks;    ///< as far as it says
  std::optional<inference::MediaKinds> media;  ///< what it takes beside text; none: it does not say
  std::string media_marker;  ///< llama.cpp: what stands for one in a prompt's text
  std::string owner;         ///< who made the server, as its list of models says
  friend bool operator==(const EngineFacts&, const EngineFacts&) = default;
};

/// What of a request an engine can honour.
struct Traits {
  std::string_view kind;  ///< "vllm": EngineInfo::kind and the value of --engine
  std::string_view health_path;
  std::string_view metrics_path;  ///< empty = none
  bool token_ids = true;          ///< ids in and out; else text, re-tokenised here
  bool kv_events = false;
  bool seed = true;
  bool min_tokens = true;
  bool ignore_eos = true;
  bool stop_token_ids = true;
  bool extended_sampling = true;  ///< top_k, min_p, repetition_penalty
  bool penalties = true;
  bool logit_bias = true;
  bool token_filters = false;  ///< allowed_token_ids, bad_words
  bool priority = false;
  bool lora = false;
  bool cache_salt = false;
  bool structured_output = true;
  bool prompt_logprobs = false;
  inference::MediaKinds media = {};  ///< kinds that can be put to it, if its model takes them
  int32_t logprobs_max = -1;         ///< alternatives per token; -1 = no log-probabilities at all
};

/// One POST that carries a generation request.
struct EngineCall {
  std::string path;
  std::string body;
  net::HttpHeaderList headers;
};

/// One GET asked at start; an optional one may be answered 404.
struct Question {
  std::string_view path;
  bool optional = false;
};

/// A scrape of the engine's metrics.
struct LoadReading {
  LoadReport load;
  double process_start_s = 0;  ///< changes when the engine restarts; 0 = not told
  std::optional<bool> asleep;  ///< none: not told
};

class Dialect {
 public:
  virtual ~Dialect() = default;
  virtual const Traits& traits() const = 0;
  virtual std::span<const Question> questions() const = 0;
  /// Reads the answer (status 200) to one of questions() into `facts`. kCorrupt if it is not what
  /// this kind of engine says; the message names the path.
  virtual Status learn(std::string_view path, std::string_view body, EngineFacts& facts) const = 0;
  /// The call for a request that passed check_request(). kUnsupported where the engine could not
  /// keep a promise (a JSON schema it does not enforce).
  virtual Result<EngineCall> lower(const inference::EngineRequest& request,
                                   const EngineFacts& facts) const = 0;
  /// Reads the answer to that call.
  virtual std::unique_ptr<EventRaiser> make_raiser(
      const inference::EngineRequest& request) const = 0;
  /// How long a prefill server keeps a prompt for its taker, where the operator says `configured`;
  /// none: for ever, and it has nothing to say about it.
  virtual std::optional<Duration> lease(const EngineFacts& /*facts*/, Duration configured) const {
    return configured;
  }
  /// Reads a scrape; false if nothing in it is known.
  virtual bool read_load(std::string_view metrics, const EngineFacts& facts,
                         LoadReading& reading) const = 0;
  /// The call for what an operator wants; kUnsupported where this kind of engine has none.
  virtual Result<EngineCall> lower_control(const Control& control) const;
  /// Whether the answer to that call says that it was done; an error names what to change.
  virtual Status read_control(const Control& control, int status, std::string_view body) const;
};

/// Where servers with adapters list them; Dialect::learn() reads it.
inline constexpr std::string_view kModelsPath = "/v1/models";

struct DialectOptions {
  /// Token and text forms of prompts, for engines without token ids. Outlives the dialect.
  const tokenizer::Tokenizer* tokenizer = nullptr;
  bool vllm_generate = false;  ///< vLLM's /inference/v1/generate instead of /v1/completions
  std::string host;            ///< of the engine: stands in for wildcards in event endpoints
};

/// "vllm", "sglang", "trtllm", "llamacpp" or "openai". kInvalidArgument for another kind.
Result<std::unique_ptr<Dialect>> make_dialect(std::string_view kind, const DialectOptions& options);

std::unique_ptr<Dialect> make_vllm_dialect(const DialectOptions& options);
std::unique_ptr<Dialect> make_sglang_dialect(const DialectOptions& options);
std::unique_ptr<Dialect> make_trtllm_dialect(const DialectOptions& options);
std::unique_ptr<Dialect> make_llamacpp_dialect(const DialectOptions& options);
std::unique_ptr<Dialect> make_openai_dialect(const DialectOptions& options);

}  // namespace stator::engine::adapters
