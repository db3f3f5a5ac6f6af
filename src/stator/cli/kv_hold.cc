// SPDX-License-Identifier: Apache-2.0
// `stator kv hold`: memory that outlives the engines that use it.
#include <string>

#include "stator/app/signals.h"
#include "stator/cli/command.h"
#include "stator/core/clock.h"
#include "stator/core/config.h"
#include "stator/storage/kept_memory.h"

namespace stator::cli {

Status run_kv_hold(Invocation& invocation) {
  const auto option = [&](std::string_view flag) {
    const auto found = invocation.options.find(flag);
    return found == invocation.options.end() ? std::string() : found->second;
  };
  storage::KeeperOptions options{.socket = option("--socket")};
  if (options.socket.empty()) {
    return Error(Code::kInvalidArgument, "stator kv hold needs --socket PATH");
  }
  if (const std::string bytes = option("--bytes"); !bytes.empty()) {
    STATOR_TRY(options.bytes_max, parse_bytes(bytes), "--bytes");
  }
  if (const std::string idle = option("--idle"); !idle.empty()) {
    STATOR_TRY(options.idle, parse_duration(idle), "--idle");
  }
  Signals signals;
  SystemClock clock;
  return storage::serve_kept_memory(
      options, [&signals] { return signals.wait_for(Duration::zero()); }, clock);
}

}  // namespace stator::cli
