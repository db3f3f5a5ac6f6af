// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/lab/simulator/line_reader.h"

namespace stator::simulator {

/// A JSON object of a trace, read with errors that name file, line and field. A view: the parser
/// and the line outlive it.
class JsonRow {
 public:
  using Object = simdjson::dom::object;
  using Element = simdjson::dom::element;
  /// A field and what else it may be called, if anything.
  struct Names {
    std::string_view name;
    std::string_view alias{};
  };

  static Result<JsonRow> parse(simdjson::dom::parser& parser, std::string_view line,
                               const LineReader& lines);

  /// null is as absent.
  bool has(Names names) const {
    const auto value = find(names).second;
    return value.error() == simdjson::SUCCESS && !value.is_null();
  }
  /// The object under this name; none if it is absent or something else.
  std::optional<JsonRow> find_object(std::string_view name) const;

  Result<uint32_t> read_tokens(Names names) const;
  enum class TimeUnit : uint8_t { kMilliseconds, kSeconds };
  /// ≥ 0.
  Result<Duration> read_time(Names names, TimeUnit unit = TimeUnit::kMilliseconds) const;
  /// Absent is `absent`.
  Result<double> read_number(std::string_view name, double low, double high, double absent) const;
  /// Numbers are taken for text, too; absent is empty.
  Status read_text(std::string_view name, std::string& text) const;
  /// Whole numbers ≥ 0; absent is empty.
  Status read_ids(std::string_view name, std::vector<uint64_t>& ids) const;
  /// Strings; absent is empty.
  Status read_texts(std::string_view name, std::vector<std::string>& texts) const;

  Error fail(std::string_view field, std::string_view what) const {
    return lines_->fail(field, what);
  }

 private:
  JsonRow(Object row, const LineReader& lines) : row_(row), lines_(&lines) {}
  /// The first of the names that is there; the error of the first if none is.
  std::pair<std::string_view, simdjson::simdjson_result<Element>> find(Names names) const;

  Object row_;
  const LineReader* lines_;
};

}  // namespace stator::simulator
