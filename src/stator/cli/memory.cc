// SPDX-License-Identifier: Apache-2.0
// `stator memory`: memory that engines share and that outlives them.
#include <string>

#include "stator/app/signals.h"
#include "stator/cli/command.h"
#include "stator/core/clock.h"
#include "stator/core/config.h"
#include "stator/core/log.h"
#include "stator/memory_service/service.h"
#include "stator/storage/budgets.h"

namespace stator::cli {

Status run_memory(Invocation& invocation) {
  const auto option = [&](std::string_view flag) {
    const auto found = invocation.options.find(flag);
    return found == invocation.options.end() ? std::string() : found->second;
  };
  memory_service::ServiceOptions options{.socket = option("--socket")};
  if (options.socket.empty()) {
    return Error(Code::kInvalidArgument, "stator memory needs --socket PATH");
  }
  options.bytes_max = storage::memory_limit() / 4 * 3;
  if (const std::string bytes = option("--bytes"); !bytes.empty()) {
    STATOR_TRY(options.bytes_max, parse_bytes(bytes), "--bytes");
  }
  Signals signals;
  SystemClock clock;
  STATOR_TRY(const auto service, memory_service::Service::open(options, clock));
  log::info("memory_service", "ready",
            {{"socket", options.socket}, {"bytes_max", options.bytes_max}});
  while (!signals.wait_for(Duration::zero())) {
    service->turn(std::chrono::milliseconds(200));
  }
  return {};
}

}  // namespace stator::cli
