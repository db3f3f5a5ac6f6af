// SPDX-License-Identifier: Apache-2.0
// Vocabulary files other than tokenizer.json: what they are read as, and every way in which they
// can be broken.
#include "stator/tokenizer/gguf_chat.h"
#include "stator/tokenizer/pipeline.h"
#include "stator/tokenizer/test/golden_files.h"
#include "stator/tokenizer/test/vocabulary_files.h"
#include "stator/tokenizer/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace stator::tokenizer {
namespace {

using test::GgufWriter;
using test::SentencePieceFile;
using testing::ElementsAre;
using testing::HasSubstr;
using Declarations = Tokenizer::TokenDeclarations;

std::unique_ptr<Tokenizer> load(std::string_view file, Declarations beside = {}) {
  auto tokenizer = Tokenizer::from_bytes(file, beside);
  EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  return tokenizer ? *std::move(tokenizer) : nullptr;
}

std::vector<TokenId> ids_of(const Tokenizer& tokenizer, std::string_view text,
                            EncodeOptions options = {}) {
  std::vector<TokenId> ids;
  const Status status = tokenizer.encode(text, options, ids);
  EXPECT_TRUE(status.has_value()) << status.error().to_string();
  return ids;
}

std::string error_of(std::string_view file, Code code, Declarations beside = {}) {
  const auto tokenizer = Tokenizer::from_bytes(file, beside);
  if (tokenizer.has_value()) {
    return "it loads";
  }
  EXPECT_EQ(tokenizer.error().code(), code) << tokenizer.error().message();
  return tokenizer.error().message();
}

// tiktoken

TEST(TiktokenFile, MergesByRankFromTheLeft) {
  const auto tokenizer = load(test::tiktoken_file({"aa", "aaa", "b c"}));

  EXPECT_THAT(ids_of(*tokenizer, "aaaa"), ElementsAre(256, 256));
  EXPECT_THAT(ids_of(*tokenizer, "aaaaa"), ElementsAre(256, 257));
  EXPECT_THAT(ids_of(*tokenizer, "aaa"), ElementsAre(257));  // a piece that is a token
  EXPECT_THAT(ids_of(*tokenizer, "é"), ElementsAre(0xC3, 0xA9));
  EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, "aaa é"), SkipSpecial::kNo), "aaa é");
}

TEST(TiktokenFile, KimiFillsReservedSpecialTokens) {
  const auto tokenizer =
      load(test::tiktoken_file({}),
           {.tokenizer_config_json =
                R"({"added_tokens_decoder":{"257":{"content":"[EOS]","special":true}}})",
            .config_json = R"({"model_type":"kimi_k2"})"});

  EXPECT_EQ(tokenizer->find("[EOS]"), 257U);
  EXPECT_EQ(tokenizer->find("<|reserved_token_256|>"), 256U);
  EXPECT_EQ(tokenizer->vocab_size(), 256U + 256U);
  EXPECT_THAT(ids_of(*tokenizer, "a[EOS]"), ElementsAre('a', 257));
  EXPECT_EQ(ids_of(*tokenizer, "[EOS]", {.special_tokens = SpecialTokens::kAsText}).size(), 5U);
}

TEST(TiktokenFile, KimiSplitsChineseFromOtherLetters) {
  const auto tokenizer = load(test::tiktoken_file({"\xE4\xB8\xAD", "a\xE4\xB8\xAD"}),
                              {.config_json = R"({"model_type":"kimi"})"});

  EXPECT_THAT(ids_of(*tokenizer, "a中"), ElementsAre('a', 256));
}

TEST(TiktokenFile, QwenComposesText) {
  const auto tokenizer =
      load(test::tiktoken_file({"\xC3\xA9"}), {.config_json = R"({"model_type":"qwen"})"});

  EXPECT_THAT(ids_of(*tokenizer, "e\u0301"), ElementsAre(256));
  EXPECT_EQ(tokenizer->find("<|im_start|>"), 151644U);
}

TEST(TiktokenFile, ATokenMayHaveNoBytes) {
  const auto tokenizer = load(test::tiktoken_file({"ab"}) + "= 257\n");

  EXPECT_THAT(ids_of(*tokenizer, "abc"), ElementsAre(256, 'c'));
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{256, 257, 'c'}, SkipSpecial::kNo), "abc");
}

TEST(TiktokenFile, NamesTheBrokenLine) {
  const std::string good = test::tiktoken_file({});

  EXPECT_THAT(error_of("YQ== 0\nYg==\n", Code::kCorrupt), HasSubstr("line 2"));
  EXPECT_THAT(error_of("YQ== 0\nYg== x\n", Code::kCorrupt), HasSubstr("line 2"));
  EXPECT_THAT(error_of("Y!== 0\n", Code::kCorrupt), HasSubstr("base64"));
  EXPECT_THAT(error_of("YQ== 4194304\n", Code::kCorrupt), HasSubstr("4194304"));
  EXPECT_THAT(error_of(good + "YWE= 7\n", Code::kCorrupt), HasSubstr("two tokens have the id 7"));
  EXPECT_THAT(error_of(good.substr(0, good.rfind("/w==")), Code::kCorrupt), HasSubstr("byte"));
  EXPECT_THAT(error_of(good, Code::kCorrupt, {.config_json = "{"}), HasSubstr("config.json"));
}

// tekken

std::string tekken_file(size_t used, std::string_view more = "") {
  std::string vocab;
  for (int byte = 0; byte < 256; ++byte) {
    vocab += fmt::format(R"({{"rank":{},"token_bytes":"{}","token_str":null}},)", byte,
                         test::to_base64(std::string(1, static_cast<char>(byte))));
  }
  vocab += R"({"rank":256,"token_bytes":"YWI="},{"rank":257,"token_bytes":"YmM="})";
  return fmt::format(
      R"({{"config":{{"pattern":"[a-z]+|[^a-z]+","default_vocab_size":{},"default_num_special_tokens":10}},)"
      R"("vocab":[{}]{}}})",
      used + 10, vocab, more);
}

TEST(TekkenFile, PutsSpecialTokensBeforeTheVocabularyAndCutsIt) {
  const auto tokenizer = load(tekken_file(257));

  EXPECT_THAT(ids_of(*tokenizer, "ab"), ElementsAre(266));
  EXPECT_THAT(ids_of(*tokenizer, "bc"), ElementsAre('b' + 10, 'c' + 10));
  EXPECT_THAT(ids_of(*tokenizer, "a", {.add_special = AddSpecial::kYes}), ElementsAre(1, 'a' + 10));
  EXPECT_THAT(ids_of(*tokenizer, "[INST]"), ElementsAre(3));
  EXPECT_EQ(tokenizer->vocab_size(), 267U);
}

TEST(TekkenFile, NamesListedSpecialTokensAndFillsTheRest) {
  const auto tokenizer = load(
      tekken_file(258, R"(,"special_tokens":[{"rank":2,"token_str":"</s>","is_control":true}])"));

  EXPECT_EQ(tokenizer->find("</s>"), 2U);
  EXPECT_EQ(tokenizer->find("<SPECIAL_9>"), 9U);
  EXPECT_TRUE(tokenizer->is_special(9));
}

TEST(TekkenFile, RefusesWhatContradictsItself) {
  EXPECT_THAT(error_of(tekken_file(259), Code::kCorrupt), HasSubstr("default_vocab_size"));
  EXPECT_THAT(error_of(tekken_file(257, R"(,"special_tokens":[{"rank":10,"token_str":"x"}])"),
                       Code::kCorrupt),
              HasSubstr("rank 10"));
  EXPECT_THAT(error_of(R"({"config":{}})", Code::kCorrupt), HasSubstr("vocab"));
  EXPECT_THAT(error_of(R"({"config":{"pattern":"("},"vocab":[]})", Code::kCorrupt), HasSubstr(""));
}

// GGUF

GgufWriter byte_level_gguf(std::string_view pre) {
  std::vector<std::string> tokens = test::byte_alphabet_tokens();
  tokens.insert(tokens.end(), {"ab", "abc", "<|end|>", "<tool>"});
  std::vector<int32_t> types(tokens.size(), 1);
  types[258] = 3;
  types[259] = 4;
  GgufWriter writer;
  writer.number("general.file_type", 1)
      .text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", pre)
      .texts("tokenizer.ggml.tokens", tokens)
      .ints("tokenizer.ggml.token_type", types)
      .texts("tokenizer.ggml.merges", {"a b"})
      .number("tokenizer.ggml.bos_token_id", 258);
  return writer;
}

TEST(GgufFile, ByteLevelSplitsAsItsNameSays) {
  const auto gpt2 = load(byte_level_gguf("gpt-2").bytes());
  const auto llama = load(byte_level_gguf("llama-bpe").bytes());

  EXPECT_THAT(ids_of(*gpt2, "abc"), ElementsAre(256, 'c'));
  EXPECT_THAT(ids_of(*llama, "abc"), ElementsAre(257));  // merges do not count
  EXPECT_THAT(ids_of(*llama, "a", {.add_special = AddSpecial::kYes}), ElementsAre(258, 'a'));
  EXPECT_THAT(ids_of(*gpt2, "a<tool><|end|>"), ElementsAre('a', 259, 258));
  EXPECT_EQ(ids_of(*gpt2, "<|end|>", {.special_tokens = SpecialTokens::kAsText}).size(), 7U);
}

TEST(GgufFile, EveryKnownSplitCompiles) {
  for (const char* name :
       {"default",    "llama-bpe", "deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon",
        "starcoder",  "gpt-2",     "refact",       "command-r",      "qwen2",       "qwen35",
        "olmo",       "dbrx",      "smaug-bpe",    "chatglm-bpe",    "tekken",      "gpt-4o",
        "kimi-k2",    "hunyuan",   "seed-coder",   "minimax-m2",     "bloom",       "viking",
        "bailingmoe", "exaone",    "exaone-moe",   "superbpe"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = load(byte_level_gguf(name).bytes());
    ASSERT_NE(tokenizer, nullptr);
    const std::string text = "It's 1234 ab\n\n  中文 größe?!  x";
    EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, text), SkipSpecial::kNo), text);
  }
}

TEST(GgufFile, SplitsRunAsScannersButForOne) {
  for (const char* name : {"default", "deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon",
                           "starcoder", "bloom", "viking", "exaone-moe", "superbpe"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = load(byte_level_gguf(name).bytes());
    ASSERT_NE(tokenizer, nullptr);
    const auto& steps = tokenizer->pipeline().pre_tokenizer.steps;
    const bool is_scanner =
        steps.size() == 1 && std::holds_alternative<PreTokenizer::Scan>(steps.front());
    EXPECT_EQ(is_scanner, std::string_view(name) != "superbpe");
  }
}

GgufWriter sentencepiece_gguf(std::string_view kind) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<float> scores = {0, 0, 0};
  std::vector<int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    scores.push_back(0);
    types.push_back(6);
  }
  for (const auto& [text, score] : std::vector<std::pair<std::string, float>>{
           {"\u2581", -9}, {"a", -10}, {"b", -11}, {"ab", -1}, {"\u2581a", -2}, {"aa", -3}}) {
    tokens.push_back(text);
    scores.push_back(score);
    types.push_back(1);
  }
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", kind)
      .texts("tokenizer.ggml.tokens", tokens)
      .floats("tokenizer.ggml.scores", scores)
      .ints("tokenizer.ggml.token_type", types)
      .number("tokenizer.ggml.bos_token_id", 1)
      .number("tokenizer.ggml.eos_token_id", 2);
  return writer;
}

TEST(GgufFile, SentencePieceMergesTheBestScoreFirst) {
  const auto tokenizer = load(sentencepiece_gguf("llama").bytes());

  // ▁=259 a=260 b=261 ab=262 ▁a=263 aa=264
  EXPECT_THAT(ids_of(*tokenizer, "ab"), ElementsAre(259, 262));
  EXPECT_THAT(ids_of(*tokenizer, "aaa"), ElementsAre(263, 264));
  EXPECT_THAT(ids_of(*tokenizer, "é"), ElementsAre(259, 3 + 0xC3, 3 + 0xA9));
  EXPECT_THAT(ids_of(*tokenizer, "a", {.add_special = AddSpecial::kYes}), ElementsAre(1, 263));
  EXPECT_THAT(ids_of(*tokenizer, "a</s>a"), ElementsAre(263, 2, 263));
  EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, "a  aé"), SkipSpecial::kNo), "a  aé");
}

TEST(GgufFile, SentencePieceAddsNoSpaceIfTheFileSaysSo) {
  const auto tokenizer =
      load(sentencepiece_gguf("llama").flag("tokenizer.ggml.add_space_prefix", false).bytes());

  EXPECT_THAT(ids_of(*tokenizer, "aa a"), ElementsAre(264, 263));
}

TEST(GgufFile, Gemma4MergesCharactersWithinLines) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
  }
  for (const std::string_view text :
       {"a", "b", "\u2581", "\n", "\n\n", "ab", "\u2581a", "#", "#"}) {
    tokens.emplace_back(text);
    types.push_back(1);
  }
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", "gemma4")
      .texts("tokenizer.ggml.tokens", tokens)
      .ints("tokenizer.ggml.token_type", types)
      .texts("tokenizer.ggml.merges", {"a b", "\u2581 a"})
      .number("tokenizer.ggml.bos_token_id", 1);
  const auto tokenizer = load(writer.bytes());

  // a=259 b=260 ▁=261 \n=262 \n\n=263 ab=264 ▁a=265 #=267, the later one
  EXPECT_THAT(ids_of(*tokenizer, "ab a"), ElementsAre(264, 265));
  EXPECT_THAT(ids_of(*tokenizer, "a\n\nb\n"), ElementsAre(259, 263, 260, 262));
  EXPECT_THAT(ids_of(*tokenizer, "#é"), ElementsAre(267, 3 + 0xC3, 3 + 0xA9));
  EXPECT_THAT(ids_of(*tokenizer, "a", {.add_special = AddSpecial::kYes}), ElementsAre(1, 259));
  EXPECT_THAT(ids_of(*tokenizer, "a</s>b"), ElementsAre(259, 2, 260));
  EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, "a  aé\n\n"), SkipSpecial::kNo), "a  aé\n\n");
}

TEST(GgufFile, UnigramTakesTheBestTotal) {
  const auto tokenizer = load(sentencepiece_gguf("t5").bytes());

  EXPECT_THAT(ids_of(*tokenizer, "ab", {.add_special = AddSpecial::kYes}),
              ElementsAre(259, 262, 2));
  EXPECT_THAT(ids_of(*tokenizer, "aaa"), ElementsAre(263, 264));
}

TEST(GgufFile, BertMatchesTheLongestParts) {
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", "bert")
      .texts("tokenizer.ggml.tokens",
             {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581un", "\u2581u", "able", "\u2581!"})
      .ints("tokenizer.ggml.token_type", {3, 2, 3, 3, 1, 1, 1, 1})
      .number("tokenizer.ggml.cls_token_id", 2)
      .number("tokenizer.ggml.seperator_token_id", 3);
  const auto tokenizer = load(writer.bytes());

  EXPECT_THAT(ids_of(*tokenizer, "Ünable!", {.add_special = AddSpecial::kYes}),
              ElementsAre(2, 4, 6, 7, 3));
  EXPECT_THAT(ids_of(*tokenizer, "unx un"), ElementsAre(1, 4));
  EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, "unable!"), SkipSpecial::kNo), "unable!");
}

TEST(GgufFile, NamesWhatItCannotRun) {
  EXPECT_THAT(error_of(byte_level_gguf("no-such-split").bytes(), Code::kUnsupported),
              HasSubstr("no-such-split"));
  EXPECT_THAT(error_of(sentencepiece_gguf("rwkv").bytes(), Code::kUnsupported), HasSubstr("rwkv"));
  EXPECT_THAT(error_of(sentencepiece_gguf("llama").bytes(/*version=*/1), Code::kUnsupported),
              HasSubstr("version 1"));
  EXPECT_THAT(error_of(GgufWriter().bytes(), Code::kCorrupt), HasSubstr("tokenizer.ggml.model"));
}

TEST(GgufFile, RefusesWhatContradictsItself) {
  const auto with = [](auto change) {
    GgufWriter writer = sentencepiece_gguf("llama");
    change(writer);
    return writer.bytes();
  };

  EXPECT_THAT(error_of(with([](GgufWriter& w) { w.number("tokenizer.ggml.bos_token_id", 999); }),
                       Code::kCorrupt),
              HasSubstr("999"));
  EXPECT_THAT(error_of(with([](GgufWriter& w) { w.floats("tokenizer.ggml.scores", {1.0F}); }),
                       Code::kCorrupt),
              HasSubstr("1 scores"));
  EXPECT_THAT(
      error_of(with([](GgufWriter& w) { w.text("tokenizer.ggml.tokens", "x"); }), Code::kCorrupt),
      HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(error_of(with([](GgufWriter& w) { w.texts("tokenizer.ggml.tokens", {"\xFF"}); }),
                       Code::kCorrupt),
              HasSubstr(""));
  EXPECT_THAT(error_of(byte_level_gguf("gpt-2").texts("tokenizer.ggml.merges", {"ab"}).bytes(),
                       Code::kCorrupt),
              HasSubstr("merges[0]"));
}

TEST(GgufFile, EveryTruncationIsAnError) {
  const std::string file = sentencepiece_gguf("llama").bytes();

  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(Tokenizer::from_bytes(std::string_view(file).substr(0, size), {}).has_value())
        << size;
  }
}

// SentencePiece

SentencePieceFile sentencepiece_file(int model_type) {
  return {.pieces = {{"<unk>", 0, 2},
                     {"<s>", 0, 3},
                     {"</s>", 0, 3},
                     {"\u2581", -3},
                     {"a", -4},
                     {"b", -5},
                     {"\u2581a", -1},
                     {"ab", -1.5F},
                     {"<tool>", 0, 4}},
          .model_type = model_type};
}

TEST(SentencePieceModel, UnigramCollapsesSpacesAndAddsOne) {
  const auto tokenizer = load(sentencepiece_file(1).bytes());

  EXPECT_THAT(ids_of(*tokenizer, "  a   b  "), ElementsAre(6, 3, 5));
  EXPECT_THAT(ids_of(*tokenizer, "ab<tool>"), ElementsAre(3, 7, 8));
  EXPECT_THAT(ids_of(*tokenizer, "xyz"), ElementsAre(3, 0));
  EXPECT_THAT(ids_of(*tokenizer, "<s>", {.special_tokens = SpecialTokens::kAsText}),
              ElementsAre(3, 0));  // the name of a control token is no text of it
}

TEST(SentencePieceModel, BpeMergesByScore) {
  SentencePieceFile file = sentencepiece_file(2);
  file.collapses_spaces = false;
  const auto tokenizer = load(file.bytes());

  EXPECT_THAT(ids_of(*tokenizer, "ab ab", {.add_special = AddSpecial::kYes}),
              ElementsAre(1, 6, 5, 6, 5));
  EXPECT_THAT(ids_of(*tokenizer, "b  a"), ElementsAre(3, 5, 3, 6));
}

TEST(SentencePieceModel, UserDefinedPiecesDoNotCutTheText) {
  SentencePieceFile file = sentencepiece_file(1);
  const auto collapsing = load(file.bytes());
  file.collapses_spaces = false;
  const auto keeping = load(file.bytes());

  EXPECT_THAT(ids_of(*collapsing, "<tool>ab <tool> a"), ElementsAre(3, 8, 7, 3, 8, 6));
  EXPECT_THAT(ids_of(*keeping, "a  <tool>b"), ElementsAre(6, 3, 3, 8, 5));
}

TEST(SentencePieceModel, DecodingTakesTheSpaceOffThatEncodingAddsOrCollapses) {
  const std::vector<TokenId> ids = {6, 6};
  SentencePieceFile file = sentencepiece_file(1);
  const auto text = [&] { return load(file.bytes())->decode(ids, SkipSpecial::kNo); };

  EXPECT_EQ(text(), "a a");
  file.adds_prefix = false;
  EXPECT_EQ(text(), "a a");
  file.collapses_spaces = false;
  EXPECT_EQ(text(), " a a");
}

TEST(SentencePieceModel, RefusesOtherKinds) {
  EXPECT_THAT(error_of(sentencepiece_file(3).bytes(), Code::kUnsupported), HasSubstr("type 3"));
  EXPECT_THAT(error_of("\x0A\x7F", Code::kCorrupt), HasSubstr("SentencePiece"));
  EXPECT_THAT(error_of("", Code::kCorrupt), HasSubstr("0 pieces"));
}

TEST(SentencePieceModel, NoTruncationCrashes) {
  const std::string file = sentencepiece_file(1).bytes();
  size_t loaded = 0;

  for (size_t size = 0; size < file.size(); ++size) {
    loaded += Tokenizer::from_bytes(std::string_view(file).substr(0, size), {}).has_value() ? 1 : 0;
  }

  EXPECT_LT(loaded, file.size() / 4);  // a file may end after any whole piece
}

// Finding the file

class ModelFolder : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) /
                                  testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(ModelFolder, PrefersTheRicherFormat) {
  const auto vocab_size = [&] {
    const auto tokenizer = Tokenizer::load(folder_);
    return tokenizer ? (*tokenizer)->vocab_size() : 0;
  };

  EXPECT_EQ(vocab_size(), 0U);
  write("spiece.model", sentencepiece_file(1).bytes());
  EXPECT_NE(vocab_size(), 0U);
  write("model.gguf", sentencepiece_gguf("llama").bytes());
  EXPECT_EQ(vocab_size(), 265U);
  write("x.tiktoken", test::tiktoken_file({}));
  EXPECT_EQ(vocab_size(), 256U);
  write("tekken.json", tekken_file(257));
  EXPECT_EQ(vocab_size(), 267U);
  write("tokenizer.json", R"({"model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"}})");
  EXPECT_EQ(vocab_size(), 1U);
}

TEST_F(ModelFolder, EveryFileIsRecognisedByContent) {
  write("a", test::tiktoken_file({}));
  write("b", tekken_file(257));
  write("c", sentencepiece_gguf("llama").bytes());
  write("d", sentencepiece_file(1).bytes());

  for (const char* name : {"a", "b", "c", "d"}) {
    EXPECT_TRUE(Tokenizer::load(folder_ / name).has_value()) << name;
  }
  EXPECT_FALSE(Tokenizer::load(folder_ / "e").has_value());
}

TEST_F(ModelFolder, ATensorFileIsReadOnlyAsFarAsItsMetadata) {
  write("model.gguf", sentencepiece_gguf("llama").bytes() + std::string(20 << 20, '\0'));

  EXPECT_TRUE(Tokenizer::load(folder_).has_value());
}

// Recorded outputs of the tool whose format GGUF is: without BOS and EOS, specials as text.

class RecordedVocabulary : public testing::TestWithParam<const char*> {};

TEST_P(RecordedVocabulary, GivesTheRecordedIds) {
  const std::string path =
      fmt::format("{}/data/vocab/ggml-vocab-{}.gguf", STATOR_SHARED_DIR, GetParam());
  const auto texts = test::read_file(path + ".inp");
  const auto recorded = test::read_file(path + ".out");
  if (!texts || !recorded) {
    GTEST_SKIP() << "no " << path << "; the small files above cover the same code";
  }
  const auto tokenizer = Tokenizer::load(path);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  std::istringstream lines(*recorded);
  std::string line;

  for (size_t at = 0; at < texts->size(); at += kSeparator.size()) {
    const size_t end = std::min(texts->find(kSeparator, at), texts->size());
    const std::string text = texts->substr(at, end - at);
    ASSERT_TRUE(std::getline(lines, line));
    std::istringstream numbers(line);
    const std::vector<TokenId> expected{std::istream_iterator<TokenId>(numbers), {}};
    EXPECT_EQ(ids_of(**tokenizer, text, {.special_tokens = SpecialTokens::kAsText}), expected)
        << testing::PrintToString(text);
    at = end;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, RecordedVocabulary,
                         testing::Values("bert-bge", "deepseek-llm", "gpt-2", "llama-bpe",
                                         "llama-spm", "qwen2", "starcoder"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(GgufChat, HasTheTemplateAndTheTokensInIt) {
  const std::string file = test::GgufWriter()
                               .text("tokenizer.chat_template", "{{ bos_token }}")
                               .text("tokenizer.chat_template.tool_use", "t")
                               .texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<|eot|>"})
                               .number("tokenizer.ggml.bos_token_id", 1)
                               .number("tokenizer.ggml.eos_token_id", 2)
                               .number("tokenizer.ggml.eot_token_id", 3)
                               .number("tokenizer.ggml.padding_token_id", 99)
                               .bytes();

  const auto chat = read_gguf_chat(file);

  ASSERT_TRUE(chat) << chat.error().message();
  EXPECT_EQ(chat->chat_template, "{{ bos_token }}");
  EXPECT_EQ(chat->tool_use, "t");
  EXPECT_EQ(chat->eos_token_ids, (std::vector<TokenId>{2, 3}));
  const std::vector<std::pair<std::string, std::string>> named = {{"bos_token", "<s>"},
                                                                  {"eos_token", "</s>"}};
  EXPECT_EQ(chat->special_tokens, named);
  EXPECT_FALSE(read_gguf_chat(file.substr(0, file.size() - 1)));
  EXPECT_FALSE(read_gguf_chat("no GGUF file"));
}

}  // namespace
}  // namespace stator::tokenizer
