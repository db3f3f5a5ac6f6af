// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/worker_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::telemetry {
namespace {

using namespace std::chrono_literals;

WorkerFacts served() {
  WorkerFacts facts;
  facts.parent = *parse_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  facts.worker_id = "1f";
  facts.component = "backend";
  facts.role = "aggregated";
  facts.received = WallTime(1000s);
  facts.queued = 10ms;
  facts.first_output = 30ms;
  facts.took = 130ms;
  facts.output_tokens = 11;
  return facts;
}

SpanList spans_of(const WorkerFacts& facts) {
  SpanList spans;
  make_worker_spans(facts, spans);
  return spans;
}

std::vector<std::string_view> names(const SpanList& spans) {
  std::vector<std::string_view> out;
  for (const Span& span : spans) {
    out.push_back(span.name);
  }
  return out;
}

TEST(WorkerSpans, HangBelowTheFrontendsSpan) {
  const WorkerFacts facts = served();

  const SpanList spans = spans_of(facts);

  EXPECT_THAT(names(spans),
              testing::ElementsAre("handle_payload", "engine.generate", "engine.queue",
                                   "engine.prefill", "engine.decode"));
  EXPECT_EQ(spans[0].parent, facts.parent.span);
  EXPECT_EQ(spans[0].kind, Span::Kind::kServer);
  EXPECT_EQ(spans[1].parent, spans[0].id);
  for (size_t i = 2; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].parent, spans[1].id);
    EXPECT_EQ(spans[i].trace, facts.parent.trace);
  }
  EXPECT_EQ(spans[3].start, facts.received + 10ms);
  EXPECT_EQ(spans[3].end, facts.received + 30ms);
  EXPECT_EQ(spans[4].end, facts.received + 130ms);
}

TEST(WorkerSpans, LeaveOutWhatIsNotKnown) {
  WorkerFacts facts = served();
  facts.queued = {};
  facts.first_output = {};
  facts.error = "overloaded";

  const SpanList spans = spans_of(facts);

  EXPECT_THAT(names(spans), testing::ElementsAre("handle_payload", "engine.generate"));
  EXPECT_EQ(spans[1].error, "overloaded");
}

TEST(WorkerSpans, AreOthersAtAnotherWorkerAndAttempt) {
  const SpanList first = spans_of(served());
  WorkerFacts facts = served();
  facts.worker_id = "20";
  const SpanList elsewhere = spans_of(facts);
  facts = served();
  facts.attempt = 1;
  const SpanList again = spans_of(facts);

  EXPECT_NE(first[0].id, elsewhere[0].id);
  EXPECT_NE(first[0].id, again[0].id);
}

}  // namespace
}  // namespace stator::telemetry
