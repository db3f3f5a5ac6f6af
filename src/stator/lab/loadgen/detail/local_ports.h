// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace stator::loadgen::detail {

/// Local ports in turn, for many connections to one server. The kernel looks for a free one by
/// probing, which takes half a millisecond per connection once half of the ports are in use; a port
/// chosen here is checked once. Threads of a run take every `shares`-th port.
class LocalPorts {
 public:
  /// `low` and `high` are the first and last port; low > high: there are none.
  LocalPorts(uint16_t low, uint16_t high, uint32_t share, uint32_t shares)
      : low_(low), count_(high >= low ? high - low + 1U : 0U), next_(share), step_(shares) {}
  /// The system's range for outgoing connections; none when it cannot be read.
  static LocalPorts of_system(uint32_t share, uint32_t shares);

  /// 0 = let the kernel choose.
  uint16_t next() {
    if (count_ == 0) {
      return 0;
    }
    const auto port = static_cast<uint16_t>(low_ + next_ % count_);
    next_ += step_;
    return port;
  }

 private:
  uint32_t low_;
  uint32_t count_;
  uint64_t next_;
  uint32_t step_;
};

}  // namespace stator::loadgen::detail
