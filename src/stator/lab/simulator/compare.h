// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/lab/simulator/recorder.h"
#include "stator/lab/simulator/report.h"

namespace stator::simulator {

struct NamedReport;  // report_html.h

/// How one figure differs between two runs of the same trace.
struct Difference {
  std::string name;
  double first = 0;
  double second = 0;
  /// Of the means over the same requests, second − first, with what it is surely within (95 %);
  /// equal bounds for figures that are not means of requests.
  double low = 0;
  double high = 0;
  bool has_bounds = false;

  double change() const { return second - first; }
  /// 0 lies outside the bounds.
  bool significant() const { return has_bounds && (low > 0 || high < 0); }
};

/// What a comparison keeps of each request: 16 bytes.
class RequestTimes {
 public:
  void add(const RequestRecord& record);
  struct Row {
    float ttft_ms = -1;  ///< negative: it did not complete
    float tpot_ms = 0;
    float e2e_ms = 0;
  };
  /// By line of the trace, from 0 on.
  const std::vector<Row>& rows() const { return rows_; }

 private:
  std::vector<Row> rows_;
};

/// The key figures of two runs. Requests that completed in both are compared one by one; because
/// neighbours in time share their fate, bounds come from the means of 30 stretches of the trace
/// (batch means, Student's t), not from single requests.
std::vector<Difference> compare(const Report& first, const RequestTimes& first_times,
                                const Report& second, const RequestTimes& second_times);

/// {"parameter", "values": [both], "reports": [of both], "differences": [{"name", "first",
/// "second", "change", and "low" and "high" where they are known}]}
std::string render_json(std::string_view parameter, std::span<const NamedReport> reports,
                        std::span<const Difference> differences);
std::string render_table(std::span<const Difference> differences, const std::string& first,
                         const std::string& second);

}  // namespace stator::simulator
