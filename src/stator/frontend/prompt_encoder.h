// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "stator/api/api_error.h"
#include "stator/api/request.h"
#include "stator/blocks/block_hash.h"
#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/frontend/frontend_config.h"
#include "stator/frontend/model_catalog.h"
#include "stator/frontend/text_meters.h"
#include "stator/net/compute_pool.h"
#include "stator/tokenizer/encode_prompt.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::frontend {

/// From a conversation or a text to token ids and the hashes of their blocks. One per process:
/// every shard and every thread of the pool shares its prefix cache. Thread-safe.
class PromptEncoder {
 public:
  /// `pool` helps with long texts; null: nobody does. It outlives this.
  PromptEncoder(const FrontendConfig& config, const Clock& clock, Metrics& metrics,
                net::ComputePool* pool);

  /// The prompt text of a conversation. `cancel` may be null.
  api::ApiResult<std::string> render_chat(const api::ChatInput& chat, const ServedModel& model,
                                          WallTime now, const CancelToken* cancel) const;

  /// What the template is given beside the messages, with thinking and effort in all dialects: a
  /// JSON object.
  static api::ApiResult<std::string> template_arguments(const api::ChatInput& chat);

  struct TextOptions {
    tokenizer::AddSpecial add_special = tokenizer::AddSpecial::kNo;
    uint64_t hash_seed = blocks::hash_seed({}, {});  ///< of the prompt's blocks
    tokenizer::EncodeStop stop = {};
  };
  /// Encodes text (NUL bytes are dropped), all of it or, beyond options.stop.ids_max, so much that
  /// there are more ids than that.
  api::ApiResult<tokenizer::PromptIds> encode_text(std::string text, const ServedModel& model,
                                                   const TextOptions& options) const;

  /// What a prompt of ids lacks: its hashes.
  tokenizer::PromptIds hash_ids(std::vector<TokenId> ids, const ServedModel& model,
                                uint64_t hash_seed) const;

 private:
  struct ModelCounters {
    Counter cached;
    Counter uncached;
  };
  void count(const std::string& model, const tokenizer::PromptIds& prompt) const;

  const Clock& clock_;
  Metrics& metrics_;
  const std::string metrics_prefix_;
  const Histogram hashing_ms_;
  const TextMeters texts_;
  std::unique_ptr<tokenizer::PrefixCache> cache_;  // null: switched off
  tokenizer::RunParts run_parts_;                  // empty: without a pool
  mutable Mutex mutex_;
  // Bounded by the served models.
  mutable FlatMap<std::string, ModelCounters> counters_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::frontend
