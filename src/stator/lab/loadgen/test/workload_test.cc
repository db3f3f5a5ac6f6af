// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/workload.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "stator/lab/loadgen/request_builder.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::loadgen {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    path_ = testing::TempDir() + "stator_loadgen_" + std::to_string(::getpid()) + "_" +
            std::to_string(count_++);
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  static inline int count_ = 0;
  std::string path_;
};

std::string text_of(const Workload& workload, uint64_t session, uint32_t turn = 0) {
  std::string text;
  workload.append_text(session, turn, text);
  return text;
}

size_t words_of(const std::string& text) {
  return static_cast<size_t>(std::ranges::count(text, ' '));
}

std::string trace_error(const std::string& text) {
  const TemporaryFile file(text);
  const auto workload = load_trace({.path = file.path()}, PromptText());
  return workload ? "" : workload.error().message();
}

TEST(PromptText, HasTheNumberOfTokensAskedFor) {
  const auto tokenizer =
      tokenizer::Tokenizer::load(std::string(STATOR_SOURCE_DIR) + "/models/demo");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  const auto text = PromptText::create(**tokenizer);
  ASSERT_TRUE(text) << text.error().message();
  for (const uint32_t tokens : {1U, 17U, 900U}) {
    std::string out;
    text->append(5, tokens, out);
    std::vector<TokenId> ids;
    ASSERT_TRUE((*tokenizer)->encode(out, {}, ids));
    EXPECT_EQ(ids.size(), tokens);
  }
}

TEST(PromptText, IsAFunctionOfItsKey) {
  const PromptText text;
  std::string one;
  std::string same;
  std::string other;
  text.append(1, 50, one);
  text.append(1, 50, same);
  text.append(2, 50, other);

  EXPECT_EQ(one, same);
  EXPECT_NE(one, other);
  EXPECT_EQ(words_of(one), 50U);
}

TEST(PromptText, OfFewerTokensIsAPrefix) {
  const PromptText text;
  std::string whole;
  text.append(9, 50, whole);
  for (uint32_t tokens = 0; tokens < 50; ++tokens) {
    std::string part;
    text.append(9, tokens, part);
    EXPECT_TRUE(whole.starts_with(part)) << tokens;
    EXPECT_EQ(words_of(part), tokens);
  }
}

TEST(SyntheticWorkload, SharesItsPrefixesAndNothingElse) {
  const auto workload = make_synthetic_workload(
      {.input_tokens = 20, .prefix_tokens = 30, .prefix_groups = 4}, PromptText());
  std::set<std::string> prefixes;
  std::set<std::string> rests;
  for (uint64_t session = 0; session < 200; ++session) {
    const std::string text = text_of(*workload, session);
    EXPECT_EQ(words_of(text), 50U);
    size_t at = 0;  // the space before the 31st word
    for (int i = 0; i < 30; ++i) {
      at = text.find(' ', at + 1);
    }
    prefixes.insert(text.substr(0, at));
    rests.insert(text.substr(at));
  }

  EXPECT_EQ(workload->turn(0, 0).input_tokens, 50U);
  EXPECT_EQ(rests.size(), 200U);
  EXPECT_EQ(prefixes.size(), 4U);
}

TEST(SyntheticWorkload, DrawsLengthsAroundTheirMean) {
  const auto workload = make_synthetic_workload(
      {.input_tokens = 200, .input_tokens_std = 40, .output_tokens = 100, .output_tokens_std = 10},
      PromptText());
  double sum = 0;
  double squares = 0;
  for (uint64_t session = 0; session < 4000; ++session) {
    const double tokens = workload->turn(session, 0).input_tokens;
    sum += tokens;
    squares += tokens * tokens;
  }

  EXPECT_NEAR(sum / 4000, 200, 3);
  EXPECT_NEAR(std::sqrt(squares / 4000 - sum * sum / 16e6), 40, 3);
}

TEST(SyntheticWorkload, RepeatsAfterItsDistinctSessions) {
  const auto workload = make_synthetic_workload({.input_tokens = 8, .distinct = 3}, PromptText());

  EXPECT_EQ(text_of(*workload, 1), text_of(*workload, 4));
  EXPECT_NE(text_of(*workload, 1), text_of(*workload, 2));
}

TEST(TraceWorkload, HasTheLengthsTimesAndSharedPrefixesOfItsRows) {
  const TemporaryFile file(
      R"({"timestamp": 1000, "input_length": 1100, "output_length": 5, "hash_ids": [7, 8, 9]}
{"timestamp": 1500, "input_length": 1030, "output_length": 6, "hash_ids": [7, 8, 10]}
{"timestamp": 1250, "input_length": 3, "output_length": 1}
)");
  const auto loaded = load_trace({.path = file.path(), .speed = 2}, PromptText());
  ASSERT_TRUE(loaded) << loaded.error().message();
  const Workload& workload = **loaded;

  ASSERT_EQ(workload.sessions(), 3U);
  EXPECT_EQ(workload.start(0), milliseconds(0));
  EXPECT_EQ(workload.start(1), milliseconds(125)) << "sorted by time, twice as fast";
  EXPECT_EQ(workload.start(2), milliseconds(250));
  EXPECT_EQ(workload.turn(0, 0).output_tokens, 5U);
  const std::string first = text_of(workload, 0);
  const std::string second = text_of(workload, 2);
  EXPECT_EQ(words_of(first), 1100U);
  EXPECT_EQ(words_of(second), 1030U);
  const auto [a, b] = std::ranges::mismatch(first, second);
  const std::string common(first.begin(), a);
  EXPECT_GE(words_of(common), 1024U);
  EXPECT_LE(words_of(common), 1026U);
}

TEST(TraceWorkload, RowsOfASessionAreItsTurns) {
  const TemporaryFile file(R"({"timestamp":0,"input_length":4,"output_length":2,"session_id":"s"}
{"timestamp":10,"input_length":4,"output_length":2,"session_id":"t"}
{"timestamp":900,"input_length":8,"output_length":2,"session_id":"s","delay":40}
{"timestamp":2000,"input_length":9,"output_length":2,"session_id":"s"}
)");
  const auto loaded = load_trace({.path = file.path()}, PromptText());
  ASSERT_TRUE(loaded) << loaded.error().message();

  EXPECT_EQ((*loaded)->sessions(), 2U);
  EXPECT_EQ((*loaded)->turns(0), 3U);
  EXPECT_EQ((*loaded)->turn(0, 1).delay, milliseconds(40));
  EXPECT_EQ((*loaded)->turn(0, 2).delay, milliseconds(1100));
  EXPECT_EQ((*loaded)->turn(0, 2).input_tokens, 9U);
}

TEST(TraceWorkload, ATurnWithADelayNeedsNoTime) {
  const TemporaryFile file(
      "\xEF\xBB\xBF"
      R"({"timestamp":500,"input_length":4,"output_length":2}
{"timestamp":900,"input_length":5,"output_length":2,"session_id":"s"}
{"input_length":6,"output_length":2,"session_id":"s","delay":40}
)");
  const auto loaded = load_trace({.path = file.path()}, PromptText());
  ASSERT_TRUE(loaded) << loaded.error().message();

  EXPECT_EQ((*loaded)->sessions(), 2U);
  EXPECT_EQ((*loaded)->start(1), milliseconds(400));
  EXPECT_EQ((*loaded)->turn(1, 0).input_tokens, 5U);
  EXPECT_EQ((*loaded)->turn(1, 1).input_tokens, 6U);
  EXPECT_EQ((*loaded)->turn(1, 1).delay, milliseconds(40));
}

TEST(TraceWorkload, ErrorsNameLineAndField) {
  EXPECT_THAT(trace_error("{\"input_length\":1,\"output_length\":1}\nnot json\n"),
              HasSubstr(":2: "));
  EXPECT_THAT(trace_error("{\"output_length\":1}\n"), HasSubstr("input_length is missing"));
  EXPECT_THAT(trace_error("{\"input_length\":-4,\"output_length\":1}"), HasSubstr("input_length"));
  EXPECT_THAT(trace_error("{\"input_length\":99999999999,\"output_length\":1}"),
              HasSubstr("input_length"));
  EXPECT_THAT(trace_error("{\"input_length\":1,\"output_length\":0}"), HasSubstr("output_length"));
  EXPECT_THAT(trace_error("{\"timestamp\":-1,\"input_length\":1,\"output_length\":1}"),
              HasSubstr("timestamp"));
  EXPECT_THAT(trace_error("{\"input_length\":1,\"output_length\":1,\"hash_ids\":[1,\"x\"]}"),
              HasSubstr("hash_ids"));
  EXPECT_THAT(trace_error("{\"input_length\":1,\"output_length\":1,\"session_id\":[]}"),
              HasSubstr("session_id"));
  EXPECT_THAT(trace_error("\n\n"), HasSubstr("no rows"));
}

TEST(TraceWorkload, HasALimitOfRows) {
  const TemporaryFile file(
      "{\"input_length\":1,\"output_length\":1}\n"
      "{\"input_length\":1,\"output_length\":1}\n");
  const auto loaded = load_trace({.path = file.path(), .rows_max = 1}, PromptText());

  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code(), Code::kTooLarge);
  EXPECT_EQ(load_trace({.path = "/nowhere"}, PromptText()).error().code(), Code::kNotFound);
}

TEST(BodyFile, AddsWhatIsMissingAndNothingElse) {
  const TemporaryFile file(
      "{\"messages\":[],\"stream\":false,\"max_tokens\":9}\n\n{\"model\":\"own\",\"prompt\":\"x\"}"
      "\n{}\n");
  const auto loaded = load_bodies({.path = file.path(), .model = "m"});
  ASSERT_TRUE(loaded) << loaded.error().message();

  EXPECT_EQ(*(*loaded)->ready_body(0),
            "{\"model\":\"m\",\"messages\":[],\"stream\":false,\"max_tokens\":9}");
  EXPECT_EQ((*loaded)->turn(0, 0).output_tokens, 9U);
  EXPECT_EQ(*(*loaded)->ready_body(1),
            "{\"stream\":true,\"stream_options\":{\"include_usage\":true},\"model\":\"own\","
            "\"prompt\":\"x\"}");
  EXPECT_EQ(*(*loaded)->ready_body(2),
            "{\"model\":\"m\",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
  EXPECT_EQ((*loaded)->ready_body(3), (*loaded)->ready_body(0));
}

TEST(BodyFile, ErrorsNameTheLine) {
  const TemporaryFile file("{}\n[1]\n");

  EXPECT_THAT(load_bodies({.path = file.path(), .model = "m"}).error().message(), HasSubstr(":2:"));
}

/// The body of a request, checked against its Content-Length.
std::string body_of(const std::string& request) {
  const size_t head = request.find("\r\n\r\n");
  const size_t length = request.find("Content-Length: ");
  EXPECT_EQ(std::stoul(request.substr(length + 16)), request.size() - head - 4);
  return request.substr(head + 4);
}

TEST(RequestBuilder, WritesAChatRequest) {
  const auto workload =
      make_synthetic_workload({.input_tokens = 2, .output_tokens = 3}, PromptText());
  const auto builder = RequestBuilder::create(
      {.model = "a\"b", .host = "h:1", .path = "/v1/chat/completions", .api_key = "key"},
      *workload);
  ASSERT_TRUE(builder);
  std::string request;

  builder->build(0, 0, {}, request);

  EXPECT_THAT(request, testing::StartsWith("POST /v1/chat/completions HTTP/1.1\r\nHost: h:1\r\n"));
  EXPECT_THAT(request, HasSubstr("Authorization: Bearer key\r\n"));
  EXPECT_EQ(
      body_of(request),
      "{\"model\":\"a\\\"b\",\"messages\":[{\"role\":\"user\",\"content\":\"" +
          text_of(*workload, 0) +
          "\"}],\"max_tokens\":3,\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
}

TEST(RequestBuilder, ExtraFieldsReplaceItsOwn) {
  const auto workload = make_synthetic_workload({.input_tokens = 1}, PromptText());
  const auto builder = RequestBuilder::create(
      {.endpoint = Endpoint::kCompletions,
       .model = "m",
       .stream = false,
       .extra_body = R"({"max_tokens": 9, "stop": ["a"], "model": "other"})"},
      *workload);
  ASSERT_TRUE(builder);
  std::string request;

  builder->build(0, 0, {}, request);

  EXPECT_EQ(body_of(request), "{\"prompt\":\"" + text_of(*workload, 0) +
                                  "\",\"stream\":false,\"max_tokens\":9,\"stop\":[\"a\"],"
                                  "\"model\":\"other\"}");
}

TEST(RequestBuilder, ALaterTurnHoldsTheConversation) {
  const auto workload =
      make_synthetic_workload({.input_tokens = 2, .output_tokens = 0, .turns = 3}, PromptText());
  const auto builder = RequestBuilder::create({.model = "m"}, *workload);
  ASSERT_TRUE(builder);
  std::string history;
  std::string request;

  builder->add_to_history(0, 0, "Hi \\\"there\\\"", history);
  builder->build(0, 1, history, request);

  EXPECT_THAT(body_of(request),
              HasSubstr("[{\"role\":\"user\",\"content\":\"" + text_of(*workload, 0, 0) +
                        "\"},{\"role\":\"assistant\",\"content\":\"Hi \\\"there\\\"\"},"
                        "{\"role\":\"user\",\"content\":\"" +
                        text_of(*workload, 0, 1) + "\"}]"));
}

TEST(RequestBuilder, RefusesWhatWouldBreakARequest) {
  const auto workload = make_synthetic_workload({}, PromptText());

  EXPECT_FALSE(RequestBuilder::create({.extra_body = "[1]"}, *workload));
  EXPECT_FALSE(RequestBuilder::create({.api_key = "a\r\nX: y"}, *workload));
  EXPECT_FALSE(RequestBuilder::create({.headers = {{"A", "b\nc"}}}, *workload));
}

}  // namespace
}  // namespace stator::loadgen
