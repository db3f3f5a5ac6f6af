// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/vocabulary_facts.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "stator/tokenizer/test/golden_files.h"
#include "stator/tokenizer/test/vocabulary_files.h"

namespace stator::tokenizer {
namespace {

namespace fs = std::filesystem;

class VocabularyFactsTest : public testing::Test {
 protected:
  VocabularyFactsTest() {
    std::string name = (fs::temp_directory_path() / "stator-facts-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~VocabularyFactsTest() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return (folder_ / name).string();
  }

  fs::path folder_;
};

/// What the whole tokenizer says of itself.
void expect_same(const std::string& path) {
  const auto whole = Tokenizer::load(path);
  ASSERT_TRUE(whole.has_value()) << path << ": " << whole.error().to_string();
  const auto facts = load_vocabulary_facts(path);
  ASSERT_TRUE(facts.has_value()) << path << ": " << facts.error().to_string();
  EXPECT_EQ(facts->vocab_size, (*whole)->vocab_size()) << path;
  EXPECT_EQ(facts->fingerprint, (*whole)->fingerprint()) << path;
  const VocabularyFacts of_whole = facts_of(**whole);
  EXPECT_EQ(facts->first_printable, of_whole.first_printable) << path;
  EXPECT_EQ(facts->last_printable, of_whole.last_printable) << path;
}

TEST_F(VocabularyFactsTest, AreThoseOfTheWholeTokenizer) {
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(test::testdata_path("models"))) {
    if (entry.path().extension() == ".json" && entry.path().stem() != "tokenizer_config") {
      expect_same(entry.path().string());
      ++files;
    }
  }
  EXPECT_GT(files, 4U);
}

TEST_F(VocabularyFactsTest, OfOtherFormatsToo) {
  expect_same(write("tiktoken.model", test::tiktoken_file({"aa", "aaa", "b c"})));
  test::SentencePieceFile pieces;
  pieces.pieces = {{"<unk>", 0, 2}, {"\xE2\x96\x81", -1}, {"a", -2}, {"b", -3}};
  expect_same(write("tokenizer.model", pieces.bytes()));
  auto tokens = test::byte_alphabet_tokens();
  tokens.emplace_back("ab");
  expect_same(write("vocabulary.gguf", test::GgufWriter()
                                           .text("tokenizer.ggml.model", "gpt2")
                                           .text("tokenizer.ggml.pre", "llama-bpe")
                                           .texts("tokenizer.ggml.tokens", tokens)
                                           .texts("tokenizer.ggml.merges", {"a b"})
                                           .bytes()));
}

TEST_F(VocabularyFactsTest, TheLongestRunOfOrdinaryTokensIsPrintable) {
  std::string vocab;
  for (int id = 0; id < 400; ++id) {
    vocab += (id == 0 ? "" : ",") + ("\"t" + std::to_string(id)) + "\":" + std::to_string(id);
  }
  const std::string path = write(
      "tokenizer.json", R"({"model":{"type":"WordLevel","unk_token":"t0","vocab":{)" + vocab +
                            R"(}},"added_tokens":[{"id":300,"content":"t300","special":true}]})");

  const auto facts = load_vocabulary_facts(path);
  ASSERT_TRUE(facts.has_value()) << facts.error().to_string();
  EXPECT_EQ(facts->first_printable, 301U);
  EXPECT_EQ(facts->last_printable, 399U);
}

TEST_F(VocabularyFactsTest, AFolderWithoutAVocabularyIsNotFound) {
  const auto facts = load_vocabulary_facts(folder_.string());
  ASSERT_FALSE(facts.has_value());
  EXPECT_EQ(facts.error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace stator::tokenizer
