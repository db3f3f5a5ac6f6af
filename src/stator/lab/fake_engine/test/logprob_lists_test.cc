// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/logprob_lists.h"

#include <gtest/gtest.h>

namespace stator::fake_engine {
namespace {

std::string shown(TokenId id) {
  return id == 1 ? "é\"" : "ab";
}

TEST(LogprobLists, OffsetsCountCharactersFromChunkToChunk) {
  size_t offset = 0;
  std::string first;
  json::Writer writer(first);
  write_completion_logprobs(writer,
                            {{.token = 1, .logprob = std::nullopt, .top = {}},
                             {.token = 2, .logprob = -0.5F, .top = {{.token = 1, .logprob = -2}}}},
                            offset, shown);
  std::string second;
  json::Writer next(second);
  write_completion_logprobs(next, {{.token = 2, .logprob = -1.0F, .top = {}}}, offset, shown);

  EXPECT_EQ(first, R"({"text_offset":[0,2],"token_logprobs":[null,-0.5],"tokens":["é\"","ab"],)"
                   R"("top_logprobs":[null,{"é\"":-2}]})");
  EXPECT_EQ(second,
            R"({"text_offset":[4],"token_logprobs":[-1],"tokens":["ab"],"top_logprobs":[null]})");
  EXPECT_EQ(offset, 6);
}

TEST(LogprobLists, EntriesAndTheirAlternativesHaveTheSameMembers) {
  std::string out;
  json::Writer writer(out);
  const inference::TokenLogprobs entry{.sampled = {.token = 2, .logprob = -0.5F},
                                       .top = {{.token = 1, .logprob = -0.25F}}};
  write_logprob_entries(writer, {entry}, [&](const inference::TokenLogprob& one) {
    write_chat_logprob(writer, shown(one.token), one.logprob);
  });

  EXPECT_EQ(out, R"([{"token":"ab","logprob":-0.5,"bytes":[97,98],"top_logprobs":[)"
                 R"({"token":"é\"","logprob":-0.25,"bytes":[195,169,34]}]}])");
}

}  // namespace
}  // namespace stator::fake_engine
