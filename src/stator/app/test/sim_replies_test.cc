// SPDX-License-Identifier: Apache-2.0
#include "stator/app/sim_replies.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace stator::app {
namespace {

class SimReplies : public ::testing::Test {
 protected:
  void SetUp() override {
    tokenizer_ = *tokenizer::Tokenizer::load(STATOR_SOURCE_DIR "/models/demo");
  }
  void TearDown() override { std::filesystem::remove(path_); }

  Result<std::vector<engine::ScriptedReply>> read(const std::string& name,
                                                  const std::string& text) {
    path_ = std::filesystem::path(::testing::TempDir()) / name;
    std::ofstream(path_) << text;
    return read_sim_replies(path_.string(), *tokenizer_);
  }
  std::string text_of(const engine::ScriptedReply& reply) const {
    return tokenizer_->decode(reply.tokens, tokenizer::SkipSpecial::kNo);
  }

  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::filesystem::path path_;
};

TEST_F(SimReplies, ATextFileIsOneReplyWordForWord) {
  const auto replies = *read("sim_replies.txt", "<think>\nHm.</think>\n\nHello {\"a\": 1}\n");
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].when, "");
  EXPECT_EQ(text_of(replies[0]), "<think>\nHm.</think>\n\nHello {\"a\": 1}\n");
}

TEST_F(SimReplies, AJsonlFileHoldsOneConditionAndReplyPerLine) {
  const auto replies = *read(
      "sim_replies.jsonl", "{\"when\":\"x\",\"reply\":\"é\\n\"}\n\n{\"reply\":\"b<|im_end|>\"}\n");
  ASSERT_EQ(replies.size(), 2U);
  EXPECT_EQ(replies[0].when, "x");
  EXPECT_EQ(text_of(replies[0]), "é\n");
  EXPECT_EQ(replies[1].when, "");
  EXPECT_EQ(replies[1].tokens.back(), *tokenizer_->find("<|im_end|>"));
}

TEST_F(SimReplies, ABadLineIsNamed) {
  for (const char* line : {"[]", "{", "{\"when\":\"a\"}", "{\"reply\":1}"}) {
    const auto replies = read("sim_replies.jsonl", std::string("{\"reply\":\"a\"}\n") + line);
    ASSERT_FALSE(replies.has_value()) << line;
    EXPECT_EQ(replies.error().code(), Code::kInvalidArgument);
    EXPECT_NE(replies.error().message().find("sim_replies.jsonl' line 2"), std::string::npos)
        << replies.error().message();
  }
}

TEST_F(SimReplies, AMissingFileIsNamed) {
  const auto replies = read_sim_replies("/nonexistent/reply.txt", *tokenizer_);
  ASSERT_FALSE(replies.has_value());
  EXPECT_EQ(replies.error().code(), Code::kNotFound);
  EXPECT_NE(replies.error().message().find("/nonexistent/reply.txt"), std::string::npos);
}

}  // namespace
}  // namespace stator::app
