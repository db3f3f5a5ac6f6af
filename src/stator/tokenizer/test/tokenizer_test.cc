// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/tokenizer.h"

#include "stator/core/random.h"
#include "stator/tokenizer/pipeline.h"
#include "stator/tokenizer/test/golden_files.h"
#include "stator/tokenizer/unicode.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace stator::tokenizer {
namespace {

using testing::HasSubstr;

std::string model_json(const std::string& name) {
  return test::read_file(test::testdata_path("models/" + name + ".json")).value_or("");
}

/// A tokenizer with tokens a, b, ab and the given further fields.
std::string tiny(std::string_view fields) {
  return fmt::format(
      R"({{"model":{{"type":"BPE","vocab":{{"a":0,"b":1,"ab":2}},"merges":["a b"]}}{}{}}})",
      fields.empty() ? "" : ",", fields);
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                            EncodeOptions options = {}) {
  std::vector<TokenId> ids;
  EXPECT_TRUE(tokenizer.encode(text, options, ids).has_value());
  return ids;
}

TEST(Tokenizer, KnowsItsVocabulary) {
  const auto tokenizer = *Tokenizer::from_json(model_json("gpt2"));
  const auto the = tokenizer->find("Ġthe");
  const auto end = tokenizer->find("<|end|>");
  ASSERT_TRUE(the && end);

  EXPECT_EQ(tokenizer->token_bytes(*the), " the");
  EXPECT_EQ(tokenizer->token_bytes(*end), "<|end|>");
  EXPECT_TRUE(tokenizer->is_special(*end));
  EXPECT_FALSE(tokenizer->is_special(*the));
  EXPECT_EQ(tokenizer->vocab_size(), *tokenizer->find("  ") + 1);
  EXPECT_FALSE(tokenizer->find("no such token"));
  EXPECT_FALSE(tokenizer->find("\xFF"));
  EXPECT_FALSE(tokenizer->contains(tokenizer->vocab_size()));
  EXPECT_EQ(tokenizer->token_bytes(tokenizer->vocab_size()), "");
  EXPECT_EQ(tokenizer->token_text(*tokenizer->find("ÿ")), "\uFFFD");
}

TEST(Tokenizer, DecodersFindAnEmptySuffixAtEveryCharacter) {
  const auto tokenizer =
      *Tokenizer::from_json(tiny(R"("decoder":{"type":"BPEDecoder","suffix":""})"));

  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{2, 0, 2}, SkipSpecial::kNo), " a b  a ab");
}

TEST(Tokenizer, BytesThatAreNotUtf8CountAsReplacementCharacters) {
  const auto tokenizer = *Tokenizer::from_json(model_json("qwen2"));
  for (const std::string text : {"a\xFF", "\xE4\xBD", "x\xED\xA0\x80y", "\xF0\x9F\x98<|end|>"}) {
    std::string repaired;
    append_lossy(repaired, text);

    EXPECT_EQ(encode(*tokenizer, text), encode(*tokenizer, repaired));
  }
}

TEST(Tokenizer, AppendsToTheOutput) {
  const auto tokenizer = *Tokenizer::from_json(tiny(""));
  std::vector<TokenId> ids = {7};

  ASSERT_TRUE(tokenizer->encode("ab", {}, ids).has_value());
  ASSERT_TRUE(tokenizer->encode("", {}, ids).has_value());

  EXPECT_EQ(ids, (std::vector<TokenId>{7, 2}));
}

TEST(Tokenizer, LeavesTheOutputAloneWhenAnExpressionGivesUp) {
  const auto tokenizer = *Tokenizer::from_json(tiny(
      R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?:a+)+(?:a+)+[cd]"},"behavior":"Isolated","invert":false})"));
  std::vector<TokenId> ids = {7};

  const Status status = tokenizer->encode(std::string(5000, 'a'), {}, ids);

  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(ids, (std::vector<TokenId>{7}));
}

TEST(Tokenizer, RefusesTextBeyondItsLimit) {
  const auto tokenizer = *Tokenizer::from_json(tiny(""));
  const auto memory = std::make_unique_for_overwrite<char[]>(kMaxTextBytes + 1);
  std::vector<TokenId> ids;

  const Status status = tokenizer->encode({memory.get(), kMaxTextBytes + 1}, {}, ids);

  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code(), Code::kTooLarge);
}

TEST(Tokenizer, EncodesAVeryLongWord) {
  const auto tokenizer = *Tokenizer::from_json(tiny(""));
  std::string word;
  for (int i = 0; i < 1'000'000; ++i) {
    word += "ab";
  }

  EXPECT_EQ(encode(*tokenizer, word), std::vector<TokenId>(1'000'000, 2));
}

TEST(Tokenizer, WordsSeenBeforeHaveTheSameIds) {
  const auto tokenizer = *Tokenizer::from_json(model_json("llama3"));
  Random random(3);
  std::string text;
  for (size_t i = 0; i < 6000; ++i) {
    for (uint64_t left = 1 + random.below(i % 10 == 0 ? 140 : 18); left > 0; --left) {
      text += static_cast<char>('a' + random.below(26));
    }
    text += ' ';
  }

  const std::vector<TokenId> first = encode(*tokenizer, text);  // with nothing in the cache

  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(encode(*tokenizer, text), first);
  }
}

TEST(Tokenizer, NewWordsThatComeAgainInATextHaveTheSameIds) {
  const auto tokenizer = *Tokenizer::from_json(model_json("llama3"));
  Random random(4);
  std::vector<std::string> words;
  for (size_t i = 0; i < 300; ++i) {
    std::string word = " ";
    for (uint64_t left = 1 + random.below(i % 10 == 0 ? 80 : 16); left > 0; --left) {
      word += static_cast<char>('a' + random.below(26));
    }
    words.push_back(word);
  }
  std::string text;
  std::vector<size_t> chosen;
  for (size_t i = 0; i < 3000; ++i) {
    chosen.push_back(random.below(words.size()));
    text += words[chosen.back()];
  }

  const std::vector<TokenId> together = encode(*tokenizer, text);

  std::vector<TokenId> apart;
  for (const size_t i : chosen) {
    const std::vector<TokenId> one = encode(*tokenizer, words[i]);
    apart.insert(apart.end(), one.begin(), one.end());
  }
  EXPECT_EQ(together, apart);
}

TEST(Tokenizer, TruncatedFilesAreCorrupt) {
  const std::string json = model_json("llama3");
  for (size_t length = 0; length + 2 < json.size(); length += 97) {
    const auto tokenizer = Tokenizer::from_json(std::string_view(json).substr(0, length));

    ASSERT_FALSE(tokenizer.has_value()) << length;
    EXPECT_EQ(tokenizer.error().code(), Code::kCorrupt) << length;
  }
}

struct BadFile {
  std::string json;
  Code code;
  std::string message;
};

TEST(Tokenizer, NamesWhatIsWrongInAFile) {
  const std::string deep = []() {
    std::string steps = R"({"type":"Lowercase"})";
    for (int i = 0; i < 20; ++i) {
      steps = R"({"type":"Sequence","normalizers":[)" + steps + "]}";
    }
    return steps;
  }();
  const BadFile files[] = {
      {"[]", Code::kCorrupt, "JSON object"},
      {"{}", Code::kCorrupt, "no model"},
      {R"({"model":{"type":"Odd","vocab":{}}})", Code::kUnsupported, "Odd"},
      {R"({"model":{"type":"WordLevel","vocab":{}}})", Code::kCorrupt, "unk_token"},
      {R"({"model":{"type":"BPE","merges":[]}})", Code::kCorrupt, "vocab"},
      {R"({"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})", Code::kCorrupt, "vocab['a']"},
      {R"({"model":{"type":"BPE","vocab":{"a":4194304},"merges":[]}})", Code::kCorrupt,
       "vocab['a']"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a"]}})", Code::kCorrupt, "merges[0]"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}})", Code::kCorrupt, "merges[0]"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a a"]}})", Code::kCorrupt, "'aa'"},
      {R"({"model":{"type":"BPE","vocab":{},"merges":[],"dropout":0.1}})", Code::kUnsupported,
       "dropout"},
      {tiny(R"("normalizer":{"type":"Odd"})"), Code::kUnsupported, "Odd"},
      {tiny(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"!"})"), Code::kCorrupt,
       "base64"},
      {tiny(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"/w=="})"), Code::kCorrupt,
       "truncated"},
      {tiny(R"("normalizer":{"type":"Replace","pattern":{"Regex":"("},"content":""})"),
       Code::kCorrupt, "compile"},
      {tiny(R"("normalizer":)" + deep), Code::kCorrupt, "nested"},
      {tiny(R"("normalizer":{})"), Code::kCorrupt, "type"},
      {tiny(R"("pre_tokenizer":{"type":"Odd"})"), Code::kUnsupported, "Odd"},
      {tiny(R"("pre_tokenizer":{"type":"FixedLength","length":0})"), Code::kCorrupt, "length 0"},
      {tiny(R"("pre_tokenizer":{"type":"Metaspace","replacement":""})"), Code::kCorrupt,
       "one character"},
      {tiny(R"("pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"odd"})"),
       Code::kUnsupported, "'odd'"},
      {tiny(R"("pre_tokenizer":{"type":"Split","pattern":{"String":"x"},"behavior":"Odd"})"),
       Code::kUnsupported, "Odd"},
      {tiny(
           R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a&&b]"},"behavior":"Removed"})"),
       Code::kUnsupported, "&&"},
      {tiny(R"("post_processor":{"type":"Odd"})"), Code::kUnsupported, "Odd"},
      {tiny(
           R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}]})"),
       Code::kCorrupt, "'x'"},
      {tiny(R"("post_processor":{"type":"TemplateProcessing","single":[]})"), Code::kUnsupported,
       "0 times"},
      {tiny(R"("decoder":{"type":"Odd"})"), Code::kUnsupported, "Odd"},
      {tiny(R"("decoder":{"type":"Replace","content":""})"), Code::kCorrupt, "no pattern"},
      {tiny(R"("decoder":{"type":"Strip","content":" ","start":1000,"stop":0})"),
       Code::kUnsupported, "Strip"},
      {tiny(
           R"("decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteFallback"}]})"),
       Code::kUnsupported, "after Fuse"},
      {tiny(R"("added_tokens":[{"id":1}])"), Code::kCorrupt, "content"},
      {tiny(R"("added_tokens":[{"id":5000000,"content":"x"}])"), Code::kCorrupt, "'x'"},
      {tiny(fmt::format(R"("added_tokens":[{{"id":3,"content":"{}"}}])", std::string(5000, 'x'))),
       Code::kCorrupt, "5000"},
  };
  for (const BadFile& file : files) {
    const auto tokenizer = Tokenizer::from_json(file.json);

    ASSERT_FALSE(tokenizer.has_value()) << file.json;
    EXPECT_EQ(tokenizer.error().code(), file.code) << file.json << "\n"
                                                   << tokenizer.error().message();
    EXPECT_THAT(tokenizer.error().message(), HasSubstr(file.message));
  }
}

TEST(Tokenizer, AddsTokensThatOnlyTheConfigurationDeclares) {
  const auto tokenizer = Tokenizer::from_json(
      tiny(R"("added_tokens":[{"id":3,"content":"<s>","special":true}])"),
      {R"({"added_tokens_decoder":{"9":{"content":"<e>","special":true},"0":{"content":"<x>","special":false}},
           "bos_token":"<s>","eos_token":{"content":"<e>"},"chat_template":"ignored"})",
       R"({"pad_token":"<p>","additional_special_tokens":["b"]})"});

  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  EXPECT_EQ(encode(**tokenizer, "<s>a<e>"), (std::vector<TokenId>{3, 0, 9}));
  EXPECT_EQ((*tokenizer)->find("<x>"), 10);  // 0 is taken by the vocabulary
  EXPECT_EQ((*tokenizer)->find("<p>"), 11);
  EXPECT_TRUE((*tokenizer)->is_special(1));  // "b" keeps its id and becomes special
  EXPECT_EQ(encode(**tokenizer, "ab"), (std::vector<TokenId>{0, 1}));
}

TEST(Tokenizer, RefusesBrokenDeclarations) {
  const auto not_json = Tokenizer::from_json(tiny(""), {"{", ""});
  const auto bad_id =
      Tokenizer::from_json(tiny(""), {R"({"added_tokens_decoder":{"x":{"content":"y"}}})", ""});

  ASSERT_FALSE(not_json.has_value());
  EXPECT_THAT(not_json.error().message(), HasSubstr("tokenizer_config.json"));
  ASSERT_FALSE(bad_id.has_value());
  EXPECT_EQ(bad_id.error().code(), Code::kCorrupt);
}

TEST(Tokenizer, AcceptsIntegersBeyond64BitsInItsConfiguration) {
  // What transformers writes for "no limit".
  const auto tokenizer = Tokenizer::from_json(
      tiny(""),
      {R"({"model_max_length":1000000000000000019884624838656,"eos_token":"<\"9>"})", ""});

  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  EXPECT_TRUE((*tokenizer)->find("<\"9>").has_value());
}

TEST(Tokenizer, NumbersAddedTokensAsTheReferenceDoes) {
  // Behind the vocabulary's three, whatever the file says; a token of the vocabulary keeps its id.
  const auto tokenizer =
      *Tokenizer::from_json(tiny(R"("added_tokens":[{"id":100,"content":"<s>","special":true},
                                    {"id":7,"content":"b"},{"id":50,"content":"<e>"},
                                    {"id":60,"content":"<s>","special":true,"lstrip":true}])"));

  EXPECT_EQ(encode(*tokenizer, "a<s>b<e>"), (std::vector<TokenId>{0, 3, 1, 4}));
  EXPECT_EQ(tokenizer->vocab_size(), 5);
}

TEST(Tokenizer, ReadsScoresToTheLastBitAsTheReferenceDoes) {
  // Two ways to cut are equally likely but for rounding; ids of tokenizers 0.23.3.
  const auto tokenizer = *Tokenizer::from_json(
      R"({"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["d",-11.373816911418348],
          ["x",-4.828581980722068],["xx",-9.196864759240917]]}})");

  EXPECT_EQ(encode(*tokenizer, "dxxx"), (std::vector<TokenId>{1, 3, 2}));
}

TEST(Tokenizer, WhiteSpaceThatAnAddedTokenSwallowedIsNoOtherToken) {
  const auto tokenizer = *Tokenizer::from_json(
      tiny(R"("added_tokens":[{"id":3,"content":" ","lstrip":true,"rstrip":true},
              {"id":4,"content":"<e>","rstrip":true}])"));

  EXPECT_EQ(encode(*tokenizer, "  a  b "), (std::vector<TokenId>{3, 0, 3, 1, 3}));
  EXPECT_EQ(encode(*tokenizer, "<e>  a"), (std::vector<TokenId>{4, 0}));
}

TEST(Tokenizer, SplitsAsPublishedRunAsOneScanner) {
  using enum ScannerFamily;
  for (const auto& [name, family] :
       std::vector<std::pair<std::string, ScannerFamily>>{{"gpt2", kGpt2},
                                                          {"starcoder", kStarcoder},
                                                          {"deepseek3", kDeepseek3},
                                                          {"falcon", kFalconBytes},
                                                          {"deepseek_llm", kDeepseekLlm},
                                                          {"bloom", kBloom},
                                                          {"viking", kViking},
                                                          {"exaone_moe", kExaoneMoe}}) {
    SCOPED_TRACE(name);
    const auto tokenizer = *Tokenizer::from_json(model_json(name));
    const auto& steps = tokenizer->pipeline().pre_tokenizer.steps;
    ASSERT_EQ(steps.size(), 1U);
    const auto* scan = std::get_if<PreTokenizer::Scan>(&steps.front());
    ASSERT_NE(scan, nullptr);
    EXPECT_EQ(scan->family, family);
  }
}

TEST(Tokenizer, ExpressionsThatLeaveGapsAreNoScannersWhereGapsAreRemoved) {
  const auto tokenizer = *Tokenizer::from_json(
      tiny(R"("pre_tokenizer":{"type":"Split","behavior":"Removed","invert":true,"pattern":{"Regex":
              " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"}})"));

  Pieces pieces;
  const auto& pre_tokenizer = tokenizer->pipeline().pre_tokenizer;
  ASSERT_TRUE(pre_tokenize(pre_tokenizer, "a.b", TextStart::kYes, pieces).has_value());
  EXPECT_EQ(pieces.ranges.size(), 2U);
}

TEST(Tokenizer, LoadsAModelFolder) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "stator_tokenizer_load";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "tokenizer.json") << tiny("");
  std::ofstream(folder / "tokenizer_config.json") << R"({"eos_token":"<e>"})";

  const auto tokenizer = Tokenizer::load(folder.string());

  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  EXPECT_EQ(encode(**tokenizer, "ab<e>"), (std::vector<TokenId>{2, 3}));
  std::filesystem::remove_all(folder);
  const auto missing = Tokenizer::load(folder.string());
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
}

TEST(Tokenizer, FingerprintFollowsTheContent) {
  const auto one = *Tokenizer::from_json(tiny(""));
  const auto same = *Tokenizer::from_json(tiny(""));
  const auto other = *Tokenizer::from_json(tiny(""), {R"({"eos_token":"<e>"})", ""});

  EXPECT_EQ(one->fingerprint(), same->fingerprint());
  EXPECT_NE(one->fingerprint(), other->fingerprint());
}

TEST(Tokenizer, TokensAreJoinedBySpacesWithoutADecoder) {
  const auto tokenizer = *Tokenizer::from_json(tiny(""));

  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{0, 99, 2}, SkipSpecial::kNo), "a ab");
}

}  // namespace
}  // namespace stator::tokenizer
