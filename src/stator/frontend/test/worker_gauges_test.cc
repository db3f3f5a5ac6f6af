// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/worker_gauges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::frontend {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(WorkerGauges, ShowAWorkerFromItsFirstAnswerUntilItLeaves) {
  Metrics metrics;
  WorkerGauges gauges(metrics, "p");
  gauges.joined(WorkerId(7), "decode");
  EXPECT_THAT(metrics.render(), Not(HasSubstr("worker_id=\"7\"")));

  gauges.first_token({WorkerId(7), 1}, 0.25, 100);
  gauges.inter_token({WorkerId(7), 1}, 0.02);
  const std::string shown = metrics.render();
  EXPECT_THAT(shown, HasSubstr("p_worker_last_time_to_first_token_seconds{worker_id=\"7\","
                               "dp_rank=\"1\",worker_type=\"decode\"} 0.25\n"));
  EXPECT_THAT(shown, HasSubstr("p_worker_last_input_sequence_tokens{worker_id=\"7\","
                               "dp_rank=\"1\",worker_type=\"decode\"} 100\n"));

  gauges.left(WorkerId(7));
  gauges.first_token({WorkerId(7), 1}, 0.5, 1);
  EXPECT_THAT(metrics.render(), Not(HasSubstr("worker_id=\"7\"")));
}

}  // namespace
}  // namespace stator::frontend
