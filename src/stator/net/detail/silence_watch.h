// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

namespace stator::net::detail {

/// Keep-alive: who has been silent between two looks is asked for a sign of life, and given up when
/// none has come by the next.
class SilenceWatch {
 public:
  enum class Verdict : uint8_t { kAlive, kAsk, kGone };

  void heard() { heard_ = true; }
  /// Asked now, for other reasons: the next look gives up who stays silent.
  void ask() {
    heard_ = false;
    asked_ = true;
  }
  bool asked() const { return asked_; }
  Verdict look() {
    const bool silent = !std::exchange(heard_, false);
    if (silent && asked_) {
      return Verdict::kGone;
    }
    asked_ = silent;
    return silent ? Verdict::kAsk : Verdict::kAlive;
  }

 private:
  bool heard_ = false;  // since the last look
  bool asked_ = false;
};

}  // namespace stator::net::detail
