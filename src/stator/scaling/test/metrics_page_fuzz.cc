// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/scaling/metrics_page.h"
#include "stator/scaling/page_observer.h"
#include "stator/scaling/prometheus_query.h"

// Any bytes are an error, or a page that can be looked at twice; the same of Prometheus' answers.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::scaling;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  PageObserver observer({});
  if (const auto page = MetricsPage::parse(text)) {
    for (const double now_s : {1.0, 2.0}) {
      observer.begin();
      observer.add("a", *page);
      observer.end(now_s);
    }
  }
  if (const auto pages = parse_vector(text)) {
    observer.begin();
    for (const auto& [instance, page] : *pages) {
      observer.add(instance, page);
    }
    observer.end(3);
  }
  return 0;
}
