// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/engine/adapters/dialect.h"
#include "stator/engine/adapters/json_fields.h"
#include "stator/engine/adapters/raise.h"

namespace stator::engine::adapters {

/// What all answers in the shape of OpenAI completions share: the tokens of the choice that says
/// why it ended are held back until the stream is over, because the usage, which has the cached
/// tokens, comes behind them.
class OpenAiAnswer {
 public:
  explicit OpenAiAnswer(std::string_view engine) : engine_(engine) {}

  /// Everything of an event but its tokens: errors, usage, finish. `choice` is choices[0] if there
  /// is one.
  struct Event {
    JsonObject root;
    JsonObject choice;
    bool has_choice = false;
  };
  Result<Event> read(std::string_view json);
  /// Where to put the tokens of this event: the output, or what is held back.
  Raised& target(Raised& out) { return finished() ? held_ : out; }
  Status done(Raised& out);
  bool finished() const { return held_.finished(); }

 private:
  std::string_view engine_;  // a literal
  JsonReader reader_;
  Raised held_;  // the last tokens and the reason
  uint32_t cached_tokens_ = 0;
};

/// Facts every such server tells under /v1/models: the first model that is no adapter of another,
/// and the adapters.
Status learn_models(std::string_view body, EngineFacts& facts);

}  // namespace stator::engine::adapters
