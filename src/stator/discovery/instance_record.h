// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/inference/handoff.h"
#include "stator/inference/media.h"
#include "stator/inference/pool.h"

namespace stator::discovery {

/// What a worker serves: everything a frontend needs to prepare requests for it.
struct ModelCard {
  std::string name;  ///< what clients put in "model"
  std::vector<std::string> aliases;
  std::vector<std::string> adapters;   ///< LoRA adapters loaded now, by the names clients use
  std::vector<std::string> taints;     ///< what requests may demand or prefer (nvext)
  std::string model_path;              ///< folder or hub name with tokenizer and configuration
  uint32_t architectural_context = 0;  ///< tokens the model was made for
  uint32_t context_length = 0;         ///< tokens the worker admits, prompt and output
  uint32_t block_size = 16;            ///< tokens per KV block
  uint32_t total_kv_blocks = 0;
  uint32_t max_num_seqs = 0;
  uint32_t max_num_batched_tokens = 0;
  uint32_t vocab_size = 0;
  uint32_t dp_size = 1;     ///< data-parallel ranks, each with `total_kv_blocks` of its own
  bool kv_events = true;    ///< it tells what it has cached; else frontends guess
  std::string engine_kind;  ///< "cpu", "sim", …
  std::string engine_version;
  std::vector<TokenId> eos_token_ids;
  /// Formats of the model's output: names of parser families, "none", or "auto" (the frontend
  /// chooses by template and name).
  std::string tool_call_parser = "auto";
  std::string chat_template;          ///< in place of the model's own; empty: none
  std::string default_thinking_mode;  ///< "enabled", "disabled"; empty: as the template has it
  std::string reasoning_parser = "auto";
  bool structured_output = false;     ///< the engine can be given a grammar
  bool structured_replay = false;     ///< and takes one up within an answer another engine began
  bool prompt_logprobs = false;       ///< the engine tells how likely a prompt's tokens are
  bool token_filters = false;         ///< it follows allowed_token_ids and bad_words
  inference::MediaKinds media;        ///< what it can be given beside text
  inference::HandoffAbility handoff;  ///< whether it gives or takes prompts
  inference::PoolAbility pool;        ///< what it can do beside, or instead of, generating
  /// Hash over tokenizer, template, block size and context policy: workers of one model must agree.
  std::string checksum;
  friend bool operator==(const ModelCard&, const ModelCard&) = default;
};

enum class InstanceState : uint8_t { kStarting, kReady, kDraining };
std::string_view to_string(InstanceState state);

/// Where an instance lives in discovery. Ordered by role first, so that a role's instances are
/// neighbours.
struct InstanceKey {
  std::string namespace_name;
  std::string component;
  std::string endpoint;
  WorkerId worker;
  friend auto operator<=>(const InstanceKey&, const InstanceKey&) = default;
  /// "ns/component/endpoint/1f" (worker id in hex), for logs and file names.
  std::string to_string() const;
};

/// One live endpoint of one process.
struct InstanceRecord {
  InstanceKey key{"default", "backend", "generate", WorkerId()};
  Incarnation incarnation;
  /// "host:port" of its gRPC service; "local" when it is reachable only inside its own process.
  std::string address;
  InstanceState state = InstanceState::kReady;
  int64_t started_at_ms = 0;  ///< Unix time, for people
  ModelCard model;
  friend bool operator==(const InstanceRecord&, const InstanceRecord&) = default;
};

/// The record as one JSON object, at most kRecordBytesMax.
std::string to_json(const InstanceRecord& record);

inline constexpr size_t kRecordBytesMax = 256 * 1024;

/// Reads what to_json wrote, or a newer version of it: unknown fields are ignored, missing optional
/// ones get their defaults. kCorrupt names the field that is wrong; kTooLarge beyond
/// kRecordBytesMax.
Result<InstanceRecord> parse_instance_record(std::string_view json);

/// kInvalidArgument unless names are [a-z0-9_-]{1,63}, the worker id is 1 … 2^53 − 1 and the
/// address is set.
Status validate(const InstanceRecord& record);

}  // namespace stator::discovery
