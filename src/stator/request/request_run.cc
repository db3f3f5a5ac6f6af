// SPDX-License-Identifier: Apache-2.0
#include "stator/request/request_run.h"

#include <algorithm>

#include "stator/core/assert.h"

namespace stator::request {

RequestRun::RequestRun(const std::vector<ChoiceRun::Spec>& choices) : open_(choices.size()) {
  choices_.reserve(choices.size());
  for (const ChoiceRun::Spec& spec : choices) {
    choices_.emplace_back(spec);
  }
}

void RequestRun::close(ChoiceRun& choice) {
  if (!choice.facts().closed) {
    choice.close();
    --open_;
  }
}

bool RequestRun::on_choice_done() {
  if (state_ != State::kRunning || open_ > 0) {
    return false;
  }
  state_ = State::kAnswering;
  return true;
}

void RequestRun::on_writing() {
  STATOR_ASSERT(state_ == State::kAnswering, "R1: a body is written once, when all choices ended");
  state_ = State::kWriting;
}

bool RequestRun::on_written() {
  const bool wanted = state_ == State::kWriting;
  state_ = wanted ? State::kAnswering : state_;
  return wanted;
}

bool RequestRun::on_sent(Copy copy) {
  if (state_ == State::kAnswering && copy == Copy::kUnderWay) {
    state_ = State::kCopying;
  }
  return state_ == State::kAnswering;
}

void RequestRun::stop(MigrationOutcome how, TimePoint now, Actions& out) {
  if (done()) {
    return;
  }
  state_ = State::kDone;
  for (ChoiceRun& choice : choices_) {
    choice.stop(how, now, out);
  }
}

TimePoint RequestRun::last_sign(TimePoint last_output, TimePoint now) const {
  TimePoint sign = last_output;
  for (const ChoiceRun& choice : choices_) {
    sign = std::max(sign, choice.search().waits() ? now : choice.facts().submitted);
  }
  return sign;
}

}  // namespace stator::request
