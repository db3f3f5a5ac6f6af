// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/discovery/discovery.h"
#include "stator/net/tls_files.h"

namespace stator::discovery {

/// Workers that are named, not found.
struct StaticOptions {
  std::vector<std::string> addresses;  ///< host:port, at most kStaticWorkersMax
  std::string file;                    ///< one address a line, read again each time; empty: none
  std::optional<net::TlsFiles> tls;
  Duration interval = std::chrono::seconds(1);  ///< between two questions to one worker
  Duration timeout = std::chrono::seconds(2);   ///< of one
  uint32_t failures_max = 3;                    ///< in a row, then it is not there
};
inline constexpr size_t kStaticWorkersMax = 1024;

/// "HOST:PORT[,HOST:PORT]*", or the path of a file: @FILE, or what begins with / or a dot.
/// kInvalidArgument names what is no address.
Result<StaticOptions> parse_static_list(std::string_view text);

/// Asks each of them who it is, now and then. What it says is its record, at the address it was
/// reached at; one that does not answer is gone until it does. Registering is for workers, which
/// are named elsewhere: it does nothing. kInvalidArgument, kIo for a file or certificates that
/// cannot be read.
Result<std::unique_ptr<Discovery>> open_static_discovery(StaticOptions options, Metrics& metrics);

}  // namespace stator::discovery
