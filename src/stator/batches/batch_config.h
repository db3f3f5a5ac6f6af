// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/config.h"

namespace stator::batches {

struct BatchConfig {
  std::string folder;                       ///< empty: no files, no batches
  uint64_t file_bytes_max = 100ULL << 20;   ///< of one uploaded file
  uint64_t folder_bytes_max = 10ULL << 30;  ///< of all files; beyond, uploads are refused
  uint32_t files_max = 100'000;
  uint32_t batches_max = 10'000;                   ///< known; beyond, the oldest finished ones go
  uint32_t lines_max = 50'000;                     ///< requests of one batch
  uint32_t inflight_max = 16;                      ///< requests of all batches at once
  int32_t priority = -100;                         ///< of their requests; those of clients have 0
  Duration output_keep = std::chrono::hours(720);  ///< how long results are kept
};

/// Declares them under batches.*.
void describe(ConfigSchema& schema, BatchConfig& config);

}  // namespace stator::batches
