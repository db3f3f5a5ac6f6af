// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/chat_template/chat_template.h"
#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/engine/core/engine_config.h"
#include "stator/engine/sim/sim_runner.h"
#include "stator/inference/media.h"
#include "stator/media/prompt_rules.h"
#include "stator/net/http_server.h"
#include "stator/perf/linear_timing.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::fake_engine {

/// Whose wire formats a fake server speaks.
enum class Dialect : uint8_t { kVllm, kSglang, kTrtllm, kLlamacpp };
/// "vllm", "sglang", "trtllm", "llamacpp"; nothing for any other word.
std::optional<Dialect> find_dialect(std::string_view name);
std::string_view name_of(Dialect dialect);

/// Shape of one KV event on the wire: a map with the key "type", or an array that begins with it.
enum class EventForm : uint8_t { kMap, kArray };
/// How a block's identity is written: 64 bits without or with sign, or 32 bytes whose last eight
/// are the number, big-endian.
enum class EventHash : uint8_t { kUnsigned, kSigned, kBytes };

/// Where KV events go. Ports of rank r are those given here plus r; port 0: the system chooses.
struct EventConfig {
  bool enabled = true;
  std::string endpoint = "tcp://127.0.0.1:0";
  std::string replay_endpoint = "tcp://127.0.0.1:0";
  std::string topic = "kv-events";
  EventForm form = EventForm::kMap;
  EventHash hash = EventHash::kUnsigned;
  size_t buffer_steps = 10'000;  ///< batches kept for replay
  size_t queue_max = 100'000;    ///< batches not sent yet; beyond: the newest is dropped, counted
};

/// What the server plays in a prefill/decode split.
enum class Role : uint8_t { kAggregated, kPrefill, kDecode };

/// Which releases of the engine it looks like: today's, or those before the names changed (event
/// arrays, `gpu_cache_usage_perc`, flat error bodies, flat `remote_block_ids`).
enum class Release : uint8_t { kCurrent, kOld };

struct HandoffConfig {
  std::string host = "127.0.0.1";
  uint16_t port = 0;                               ///< side channel of rank 0; 0: system chooses
  Duration lease = std::chrono::seconds(30);       ///< then the blocks are gone
  Duration unreachable = std::chrono::seconds(5);  ///< until a dead side channel gives a 500
  Duration bootstrap_wait = std::chrono::seconds(300);  ///< SGLang: one leg waits for the other
  size_t open_max = 4'096;                              ///< beyond: the oldest counts as expired
};

/// One fake server. Everything that is not about wire formats is the simulated engine's.
struct FakeConfig {
  Dialect dialect = Dialect::kVllm;
  net::HttpServerConfig http;
  std::string model_name = "m";  ///< as served
  std::string model_path = "m";  ///< as in `root`, `model_path`
  uint32_t dp_size = 1;          ///< engines, each with its own cache and event ports
  engine::EngineConfig engine;
  std::shared_ptr<const perf::TimingModel> timing = std::make_shared<perf::LinearTiming>();
  double speedup = 1;  ///< divides its times; 0 = no waiting
  double decode_speedup = 1;
  std::vector<double> draft_acceptance;  ///< as of engine::SimRunnerConfig
  perf::HostLink host_link;
  uint64_t seed = 0;
  Release release = Release::kCurrent;
  bool scale_out = true;  ///< vLLM's /inference/v1/*
  bool dev_mode = true;   ///< vLLM's admin routes
  bool lora = true;       ///< takes LoRA adapters; vLLM and SGLang
  Role role = Role::kAggregated;
  EventConfig events;
  HandoffConfig handoff;
  Duration startup_delay{};        ///< until then every answer is 503
  bool incremental = false;        ///< SGLang: streams say only what is new
  uint32_t requests_max = 65'536;  ///< at once; beyond: 503
  uint32_t choices_max = 1'024;    ///< prompts times n of one request
};

/// What the server knows about its model. Immutable, shared.
struct FakeModel {
  /// Null: ids only. Then a text is its bytes, byte b being token 3 + b, after BOS = 1; EOS is 2,
  /// and generated tokens read " t<id>".
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  /// Null: messages are joined as "role: content" lines.
  std::shared_ptr<const chat_template::ChatTemplate> chat_template;
  std::vector<TokenId> eos_token_ids = {2};
  uint32_t vocab_size = 32'000;
  uint32_t max_model_len = 32'768;
  TokenId first_token = 259;  ///< generated tokens come from [first_token, last_token]
  TokenId last_token = 31'999;
  inference::MediaKinds media;     ///< what it takes beside text
  media::PromptRules media_rules;  ///< which tokens stand for these, where it is known
};

}  // namespace stator::fake_engine
