// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/request_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "stator/telemetry/test/facts.h"

namespace stator::telemetry {
namespace {

using ::testing::ElementsAre;

const Span& named(const SpanList& spans, std::string_view name, size_t nth = 0) {
  for (const Span& span : spans) {
    if (span.name == name && nth-- == 0) {
      return span;
    }
  }
  ADD_FAILURE() << name;
  return spans[0];
}

SpanList spans_of(const RequestFacts& facts) {
  SpanList spans;
  make_spans(facts, spans);
  return spans;
}

TEST(RequestSpans, TellOfEveryStep) {
  const RequestFacts facts = moved_request();
  const SpanList spans = spans_of(facts);
  std::vector<std::string_view> names;
  std::set<SpanId> ids;
  for (const Span& span : spans) {
    names.push_back(span.name);
    ids.insert(span.id);
    EXPECT_EQ(span.trace, facts.trace.trace);
    EXPECT_LE(span.start, span.end) << span.name;
    EXPECT_GE(span.start, spans[0].start) << span.name;
    EXPECT_LE(span.end, spans[0].end) << span.name;
  }

  EXPECT_THAT(names, ElementsAre("http-request", "prepare", "route", "queue", "decode", "route",
                                 "migration", "decode"));
  EXPECT_EQ(ids.size(), spans.size());
  EXPECT_EQ(spans[0].id, facts.trace.span);
  EXPECT_EQ(named(spans, "decode").id, attempt_span(facts.trace, 0));
  EXPECT_EQ(named(spans, "decode").error, "worker_lost");
  EXPECT_EQ(named(spans, "decode", 1).id, attempt_span(facts.trace, 1));
  EXPECT_EQ(named(spans, "decode", 1).link, attempt_span(facts.trace, 0));
  EXPECT_EQ(named(spans, "decode", 1).error, "");
  EXPECT_EQ(named(spans, "migration").end - named(spans, "migration").start,
            std::chrono::milliseconds(20));
}

TEST(RequestSpans, TellOfAPromptThatWasHandedOver) {
  RequestFacts facts = moved_request();
  facts.marks = {{Step::kPrepared, at_ms(1)},      {Step::kPrefill, at_ms(2), 5},
                 {Step::kHandedOver, at_ms(9), 5}, {Step::kRouted, at_ms(10), 8},
                 {Step::kSubmitted, at_ms(10), 8}, {Step::kFirstToken, at_ms(20), 8}};
  const SpanList spans = spans_of(facts);

  EXPECT_EQ(named(spans, "prefill").end - named(spans, "prefill").start,
            std::chrono::milliseconds(7));
  EXPECT_EQ(named(spans, "hand-off").end, facts.wall(at_ms(20)));
}

TEST(RequestSpans, OfAFailureSayWhy) {
  RequestFacts facts;
  facts.trace = moved_request().trace;
  facts.status = 429;
  facts.error_type = "overload";
  facts.ended = facts.received + std::chrono::milliseconds(1);
  const SpanList spans = spans_of(facts);

  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].error, "overload");
}

}  // namespace
}  // namespace stator::telemetry
