// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/verdict.h"

#include <fmt/format.h>

#include <algorithm>

namespace stator::loadgen {

std::vector<std::string> judge_client(const ClientFigures& client, const Figures& figures) {
  std::vector<std::string> reasons;
  const double occupied = client.busy_share + client.starved_share;
  if (occupied > kBusyShareMax || client.starved_share > kStarvedShareMax) {
    reasons.push_back(fmt::format(
        "a thread of the generator was busy {:.0f} % of the time and waited for a core {:.0f} %: "
        "use more --threads, another machine or fewer other programs",
        100 * client.busy_share, 100 * client.starved_share));
  }
  const Metric* latency = figures.find("time_to_first_token");
  if (latency == nullptr) {
    latency = figures.find("request_latency");
  }
  const double allowed =
      std::max(kDelayMsMin, kDelayShareMax * (latency == nullptr ? 0 : latency->values.p99));
  const double wake_allowed = std::max(
      kWakeDelayMsMin, kWakeDelayShareMax * (latency == nullptr ? 0 : latency->values.p50));
  if (client.wake_delay_ms > wake_allowed) {
    reasons.push_back(fmt::format(
        "what had arrived waited {:.2f} ms on average until the generator got a core (allowed "
        "here: {:.2f} ms): give it cores of its own",
        client.wake_delay_ms, wake_allowed));
  }
  if (client.send_delay_p99_ms > allowed) {
    reasons.push_back(fmt::format(
        "1 % of the requests were sent more than {:.2f} ms late (allowed here: {:.2f} ms): lower "
        "the rate, use more --threads or give the generator cores of its own",
        client.send_delay_p99_ms, allowed));
  }
  if (client.turn_p99_ms > allowed) {
    reasons.push_back(fmt::format(
        "the generator looked at its sockets {:.2f} ms late in 1 % of its turns (allowed here: "
        "{:.2f} ms): use more --threads or give it cores of its own",
        client.turn_p99_ms, allowed));
  }
  return reasons;
}

}  // namespace stator::loadgen
