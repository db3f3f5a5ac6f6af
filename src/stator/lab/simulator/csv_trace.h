// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "stator/lab/simulator/line_reader.h"
#include "stator/lab/simulator/trace_source.h"

namespace stator::simulator {

enum class CsvDialect : uint8_t {
  kAzure,     ///< TIMESTAMP (a date), ContextTokens, GeneratedTokens
  kBurstgpt,  ///< Timestamp (seconds), Request tokens, Response tokens
};

/// Published traces of lengths and times, streamed; columns are found by the names of the header,
/// further ones are ignored, prompts share nothing. Times count from the first row. An answer of 0
/// tokens, as BurstGPT notes failures, is simulated with 1. `lines` stands before the header.
/// Sources: Azure LLM inference traces 2023 and 2024; BurstGPT (Wang et al., 2024).
Result<std::unique_ptr<TraceSource>> make_csv_trace(LineReader lines, CsvDialect dialect,
                                                    uint32_t block_tokens);

/// Whether this header has the dialect's columns.
bool is_header_of(CsvDialect dialect, std::string_view header);

}  // namespace stator::simulator
