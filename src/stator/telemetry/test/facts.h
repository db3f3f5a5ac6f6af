// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/telemetry/request_facts.h"

namespace stator::telemetry {

inline TimePoint at_ms(int64_t ms) {
  return TimePoint(std::chrono::milliseconds(1000 + ms));
}

/// A streamed chat that lost its first worker (7) after two tokens and went on at worker 8.
inline RequestFacts moved_request() {
  RequestFacts facts;
  facts.method = "POST";
  facts.path = "/v1/chat/completions";
  facts.client = "10.0.0.1";
  facts.request_id = "607a0a79-1101-4085-9076-65247db09379";
  facts.x_request_id = "mine";
  facts.model = "demo";
  facts.tenant = "acme";
  facts.role = "user";
  facts.status = 200;
  facts.stream = true;
  facts.finish_reason = "stop";
  facts.received_wall = WallTime(std::chrono::milliseconds(1'700'000'000'123));
  facts.received = at_ms(0);
  facts.first_token = at_ms(20);
  facts.last_token = at_ms(80);
  facts.ended = at_ms(81);
  facts.prompt_tokens = 40;
  facts.cached_tokens = 32;
  facts.output_tokens = 7;
  facts.migrations = 1;
  facts.worker = 8;
  facts.trace = *parse_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  facts.marks = {{Step::kPrepared, at_ms(1)},       {Step::kQueued, at_ms(2)},
                 {Step::kRouted, at_ms(5), 7, 16},  {Step::kSubmitted, at_ms(5), 7},
                 {Step::kFirstToken, at_ms(20), 7}, {Step::kLost, at_ms(30), 7},
                 {Step::kRouted, at_ms(31), 8},     {Step::kSubmitted, at_ms(31), 8},
                 {Step::kFirstToken, at_ms(50), 8}};
  return facts;
}

}  // namespace stator::telemetry
