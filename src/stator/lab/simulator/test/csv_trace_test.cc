// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/csv_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/lab/simulator/test/read_trace.h"

namespace stator::simulator {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using testing::HasSubstr;

TEST(CsvTrace, ReadsAzureTraces) {
  const auto requests = read_all(
      "\xEF\xBB\xBFTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2023-11-16 23:59:59.9000000,374,44\r\n"
      "2023-11-17 00:00:00.4000001,396,109\r\n"
      "2023-11-17T00:00:01+00:00,1,1\r\n");

  ASSERT_TRUE(requests.has_value()) << requests.error().message();
  ASSERT_EQ(requests->size(), 3);
  EXPECT_EQ((*requests)[0].arrival, Duration());
  EXPECT_EQ((*requests)[0].input_tokens, 374);
  EXPECT_EQ((*requests)[0].output_tokens, 44);
  EXPECT_EQ((*requests)[1].line, 3);
  EXPECT_EQ((*requests)[1].arrival, nanoseconds(500'000'100));
  EXPECT_EQ((*requests)[2].arrival, milliseconds(1100));
}

TEST(CsvTrace, ReadsFractionsAndTimeZones) {
  const auto requests = read_all(
      "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
      "2024-05-10 00:00:00.009930+00:00,0,1,1\n"
      "2024-05-10T02:00:00.5+02:00,0,1,1\n"
      "2024-05-09 18:30:01-0530,0,1,1\n"
      "\"2024-05-10 00:00:02Z\",0,1,1\n"
      "2024-05-10 00:00:03 UTC,0,1,1\n");

  ASSERT_TRUE(requests.has_value()) << requests.error().message();
  std::vector<Duration> arrivals;
  for (const TraceRequest& request : *requests) {
    arrivals.push_back(request.arrival + nanoseconds(9'930'000));
  }
  EXPECT_THAT(arrivals,
              testing::ElementsAre(nanoseconds(9'930'000), milliseconds(500), milliseconds(1000),
                                   milliseconds(2000), milliseconds(3000)));
}

TEST(CsvTrace, SortedTimesCountFromTheEarliest) {
  const auto requests = read_all(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n"
      "2023-11-16 18:15:47,2,1\n"
      "2023-11-16 18:15:46,1,1\n"
      "2023-11-16 18:15:49,3,1\n",
      {.sort = true});

  ASSERT_TRUE(requests.has_value()) << requests.error().message();
  ASSERT_EQ(requests->size(), 3);
  EXPECT_EQ((*requests)[0].input_tokens, 1);
  EXPECT_EQ((*requests)[0].arrival, Duration());
  EXPECT_EQ((*requests)[1].arrival, milliseconds(1000));
  EXPECT_EQ((*requests)[2].arrival, milliseconds(3000));
}

TEST(CsvTrace, ReadsBurstgptWhateverTheOrderOfItsColumns) {
  const auto requests = read_all(
      "Timestamp,Session ID,Model,\"Request tokens\",Response tokens,Total tokens,Log Type\n"
      "5,,ChatGPT,472,18,490,Conversation log\n"
      "45.25,,\"GPT-4, new\",1087,0,1087,API log\n");

  ASSERT_TRUE(requests.has_value()) << requests.error().message();
  ASSERT_EQ(requests->size(), 2);
  EXPECT_EQ((*requests)[1].arrival, milliseconds(40'250));
  EXPECT_EQ((*requests)[1].input_tokens, 1087);
  EXPECT_EQ((*requests)[1].output_tokens, 1) << "a failure has an answer of one token";
}

TEST(CsvTrace, NamesLineAndColumnOfWhatIsWrong) {
  const std::string header = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,1\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"2023-11-16 18:15:47,1", "trace:3: line: has only 2 columns"},
      {"yesterday,1,1", "trace:3: TIMESTAMP: 'yesterday' is neither"},
      {"2023-13-16 18:15:46,1,1", "trace:3: TIMESTAMP: "},
      {"2023-11-16 18:65:46,1,1", "trace:3: TIMESTAMP: "},
      {"20x3-11-16 18:15:46,1,1", "trace:3: TIMESTAMP: "},
      {"9999-11-16 18:15:46,1,1", "trace:3: TIMESTAMP: "},
      {"2023-11-16x18:15:46,1,1", "trace:3: TIMESTAMP: "},
      {"2023-11-16 18:15:46+2,1,1", "trace:3: TIMESTAMP: "},
      {"2023-11-16 18:15:46 CET,1,1", "trace:3: TIMESTAMP: "},
      {"-1,1,1", "trace:3: TIMESTAMP: must be from 0"},
      {"nan,1,1", "trace:3: TIMESTAMP: 'nan'"},
      {"2023-11-16 18:15:47,0,1", "trace:3: ContextTokens: must be a whole number from 1"},
      {"2023-11-16 18:15:47,-4,1", "trace:3: ContextTokens: must be"},
      {"2023-11-16 18:15:47,1,1e30", "trace:3: GeneratedTokens: must be"},
      {"2023-11-16 18:15:47,1,", "trace:3: GeneratedTokens: must be"},
      {"2023-11-16 18:15:45,1,1", "trace:3: timestamp: -1000 ms is before the line above (0 ms)"},
  };
  for (const auto& [line, message] : cases) {
    const auto requests = read_all(header + line + "\n");

    ASSERT_FALSE(requests.has_value()) << line;
    EXPECT_THAT(requests.error().message(), HasSubstr(message));
  }
  const auto missing = read_all("TIMESTAMP,ContextTokens\n", {.format = "azure"});
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message(), HasSubstr("header: has no column 'GeneratedTokens'"));
}

}  // namespace
}  // namespace stator::simulator
