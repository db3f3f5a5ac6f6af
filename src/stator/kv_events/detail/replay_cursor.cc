// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/detail/replay_cursor.h"

#include <utility>

#include "stator/core/hash.h"

namespace stator::kv_events::detail {

void ReplayCursor::reset(Steps& out) {
  ++stats_.resets;
  next_.reset();
  out.emplace_back(Reset{});
}

void ReplayCursor::ask(Cause cause, Steps& out) {
  mode_ = Mode::kReplaying;
  cause_ = cause;
  progress_ = false;
  verify_ = next_.has_value();
  out.emplace_back(AskReplay{verify_ ? *next_ - 1 : 0});
}

/// Everything known is of another life of the publisher, or of what nobody can tell us any more.
void ReplayCursor::restart(Steps& out) {
  reset(out);
  fruitless_ = 0;
  if (can_replay_) {
    ask(Cause::kDoubt, out);
  } else {
    mode_ = Mode::kLive;
  }
}

void ReplayCursor::deliver(Message message, Steps& out) {
  next_ = message.sequence + 1;
  last_print_ = xxh3_64(message.payload);
  progress_ = true;
  out.emplace_back(Deliver{std::move(message.payload)});
}

void ReplayCursor::wait_for_replay(Message message) {
  if (waiting_.size() < kWaitingMax &&
      waiting_bytes_ + message.payload.size() <= kWaitingBytesMax) {
    waiting_bytes_ += message.payload.size();
    waiting_.push_back(std::move(message));
  }
}

ReplayCursor::Steps ReplayCursor::on_connected() {
  Steps out;
  last_live_.reset();
  waiting_.clear();
  waiting_bytes_ = 0;
  if (can_replay_) {
    ask(Cause::kDoubt, out);
    return out;
  }
  if (next_) {
    reset(out);  // nobody can tell what was missed
  }
  mode_ = Mode::kLive;
  return out;
}

ReplayCursor::Steps ReplayCursor::on_live(uint64_t sequence, std::string payload) {
  Steps out;
  const bool went_back = last_live_ && sequence <= *last_live_;
  last_live_ = sequence;
  Message message{sequence, std::move(payload)};
  if (went_back) {
    ++stats_.restarts;
    waiting_.clear();
    waiting_bytes_ = 0;
    restart(out);
  }
  if (mode_ != Mode::kLive) {
    wait_for_replay(std::move(message));
    return out;
  }
  if (next_ && sequence < *next_) {
    return out;  // a replay brought it already
  }
  if (!next_ || sequence == *next_) {
    deliver(std::move(message), out);
    return out;
  }
  ++stats_.gaps;
  if (can_replay_) {
    wait_for_replay(std::move(message));
    ask(Cause::kDoubt, out);
  } else {
    reset(out);
    deliver(std::move(message), out);
  }
  return out;
}

ReplayCursor::Steps ReplayCursor::on_quiet() {
  Steps out;
  if (can_replay_ && mode_ == Mode::kLive) {
    ask(Cause::kQuiet, out);
  }
  return out;
}

ReplayCursor::Steps ReplayCursor::on_replay(uint64_t sequence, std::string payload) {
  Steps out;
  if (mode_ != Mode::kReplaying) {
    return out;
  }
  if (verify_) {
    const bool same_life = sequence + 1 == *next_ && xxh3_64(payload) == last_print_;
    if (!same_life) {
      stats_.restarts += sequence + 1 <= *next_ ? 1 : 0;  // later: its buffer forgot where we were
      restart(out);
      return out;
    }
    verify_ = false;
    return out;
  }
  if (next_ && sequence < *next_) {
    return out;
  }
  if (next_ && sequence > *next_) {
    reset(out);  // a hole in the replay itself
  }
  deliver({sequence, std::move(payload)}, out);
  return out;
}

ReplayCursor::Steps ReplayCursor::on_replay_end() {
  Steps out;
  if (mode_ != Mode::kReplaying) {
    return out;
  }
  if (verify_) {  // it does not know our last message: it has not got that far
    ++stats_.restarts;
    restart(out);
    return out;
  }
  fruitless_ = progress_ ? 0 : fruitless_ + 1;
  drain(out);
  return out;
}

/// What came live meanwhile, as far as it continues; a new gap asks again.
void ReplayCursor::drain(Steps& out) {
  const bool give_up_on_gaps = fruitless_ >= kFruitlessMax;
  mode_ = Mode::kLive;
  while (!waiting_.empty()) {
    Message& first = waiting_.front();
    const bool is_gap = next_ && first.sequence > *next_;
    if (is_gap && !give_up_on_gaps) {
      ask(Cause::kDoubt, out);
      return;
    }
    Message message = std::move(first);
    waiting_.pop_front();
    waiting_bytes_ -= message.payload.size();
    if (next_ && message.sequence < *next_) {
      continue;
    }
    if (is_gap) {
      reset(out);
    }
    deliver(std::move(message), out);
  }
  stats_.replays += give_up_on_gaps ? 0 : 1;
  fruitless_ = 0;
}

ReplayCursor::Steps ReplayCursor::on_replay_failed() {
  Steps out;
  if (mode_ != Mode::kReplaying) {
    return out;
  }
  if (next_ && cause_ == Cause::kDoubt) {
    reset(out);  // the last delivered message may be of another life: nothing is certain
  }
  fruitless_ = kFruitlessMax;
  drain(out);
  return out;
}

}  // namespace stator::kv_events::detail
