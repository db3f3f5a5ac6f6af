// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/detail/local_ports.h"

#include <fstream>

namespace stator::loadgen::detail {

LocalPorts LocalPorts::of_system(uint32_t share, uint32_t shares) {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  uint16_t low = 1;
  uint16_t high = 0;
  file >> low >> high;
  return file ? LocalPorts(low, high, share, shares) : LocalPorts(1, 0, share, shares);
}

}  // namespace stator::loadgen::detail
