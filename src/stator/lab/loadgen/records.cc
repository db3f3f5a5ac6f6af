// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/records.h"

namespace stator::loadgen {

std::string_view outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kHttpError:
      return "http_error";
    case Outcome::kStreamError:
      return "stream_error";
    case Outcome::kBroken:
      return "broken_answer";
    case Outcome::kNoConnection:
      return "no_connection";
    case Outcome::kTimeout:
      return "timeout";
    case Outcome::kDropped:
      return "dropped";
    case Outcome::kCancelled:
      return "cancelled";
    case Outcome::kUnfinished:
      return "unfinished";
  }
  return "unknown";
}

void RecordLog::take_all(RecordLog&& other) {
  for (auto& block : other.blocks_) {
    blocks_.push_back(std::move(block));
  }
  // add() fills the last block only: a shorter one in the middle is fine for reading.
  size_ += other.size_;
  other.blocks_.clear();
  other.size_ = 0;
}

void ThreadResult::count_error(const std::string& text) {
  const auto found = errors.find(text);
  if (found != errors.end()) {
    ++found->second;
  } else {
    ++errors[errors.size() + 1 < kErrorsMax ? text : "other failures"];
  }
}

}  // namespace stator::loadgen
