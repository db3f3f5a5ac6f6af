// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/lab/loadgen/prompt_text.h"

namespace stator::loadgen {

/// One request of a session, before its text is made.
struct Turn {
  uint32_t input_tokens = 0;   ///< of the new text, 0 = unknown
  uint32_t output_tokens = 0;  ///< asked for, 0 = the server decides
  Duration delay{};            ///< after the answer to the turn before
};

/// What is asked: sessions of one or more turns. Everything is a function of (session, turn), so
/// any thread makes any request and a seed repeats a run. Thread-safe after creation.
class Workload {
 public:
  virtual ~Workload() = default;

  /// How many sessions there are; 0 = as many as one wants.
  virtual uint64_t sessions() const = 0;
  virtual uint32_t turns(uint64_t session) const = 0;
  virtual Turn turn(uint64_t session, uint32_t turn) const = 0;
  /// When a trace starts this session, from the start of the run.
  virtual Duration start(uint64_t) const { return {}; }
  /// Appends the turn's new text, ready to stand in a JSON string.
  virtual void append_text(uint64_t session, uint32_t turn, std::string& out) const = 0;
  /// A turn's prompt is all earlier turns and answers plus its own text.
  virtual bool keeps_history() const { return false; }
  /// The whole body as it is to be sent; null when it is to be made from the text.
  virtual const std::string* ready_body(uint64_t) const { return nullptr; }
};

/// Random prompts: lengths are normal, cut at 1; some of the prompt may be shared.
struct SyntheticOptions {
  uint32_t input_tokens = 128;
  double input_tokens_std = 0;
  uint32_t output_tokens = 64;
  double output_tokens_std = 0;
  uint32_t prefix_tokens = 0;  ///< put in front of a session's first prompt …
  uint32_t prefix_groups = 1;  ///< … one of that many texts, drawn evenly
  uint32_t turns = 1;
  double turns_std = 0;
  Duration turn_delay{};
  uint64_t distinct = 0;  ///< only that many different sessions, in turn; 0 = all differ
  uint64_t seed = 1;
};
std::unique_ptr<Workload> make_synthetic_workload(const SyntheticOptions& options, PromptText text);

struct TraceOptions {
  std::string path;
  uint32_t block_tokens = 512;  ///< tokens a hash id stands for
  double speed = 1;             ///< times and delays are divided by it
  uint64_t rows_max = 5'000'000;
  uint64_t seed = 1;
};
/// A trace in Mooncake's JSON Lines: timestamp (ms), input_length, output_length, hash_ids, and
/// optionally session_id with delay (ms). Rows of one session are its turns, in order of time; a
/// row without session_id is a session of its own. Equal hash ids give equal text. kInvalidArgument
/// with line and field for anything wrong, kNotFound, kTooLarge beyond rows_max.
Result<std::unique_ptr<Workload>> load_trace(const TraceOptions& options, PromptText text);

/// One request body per line, sent as it is, in turn. `model` and `stream` are added where missing.
struct BodyFileOptions {
  std::string path;
  std::string model;
  bool stream = true;
};
Result<std::unique_ptr<Workload>> load_bodies(const BodyFileOptions& options);

}  // namespace stator::loadgen
