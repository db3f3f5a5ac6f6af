// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"

namespace stator::batches {

// The lines of batches' files: JSON Lines, one request or one result each. Pure.

inline constexpr size_t kCustomIdBytesMax = 512;

/// One request. Views into the file.
struct BatchLine {
  uint32_t index = 0;  ///< from 0, blank lines not counted
  std::string custom_id;
  std::string_view body;  ///< JSON object
};

/// What is wrong with a line, in the words of the API.
struct LineError {
  std::string code;  ///< "invalid_json_line", …
  std::string message;
  std::string param;  ///< empty: null
  uint32_t line = 0;  ///< from 1
};

/// The lines of an input file for `endpoint`, or what is wrong with the first ones that are.
struct LineCheck {
  std::vector<BatchLine> lines;
  std::vector<LineError> errors;
};
LineCheck check_lines(std::string_view file, std::string_view endpoint, uint32_t lines_max);

/// How a request ended.
struct LineResult {
  uint32_t index = 0;
  std::string custom_id;
  std::string request_id;
  int status = 0;          ///< 0: it was not run, see error
  std::string body;        ///< JSON; text that is none becomes a string
  std::string error_code;  ///< of status 0: "batch_expired", "batch_cancelled"
  std::string error_message;

  bool good() const { return status >= 200 && status < 300; }
};

/// One line of an output or error file, with its line break.
std::string format_result(std::string_view batch_id, const LineResult& result);

/// A result as a batch's journal keeps it, and back; kCorrupt.
struct KeptResult {
  uint32_t index = 0;
  bool good = false;
  std::string line;  ///< of the output or error file
};
std::string encode_kept(const KeptResult& result);
Result<KeptResult> decode_kept(std::string_view record);

}  // namespace stator::batches
