// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/prompt_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "stator/core/ids.h"
#include "stator/core/random.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::loadgen {
namespace {

constexpr size_t kWordsMin = 8;
// 13 bits per phrase: 16 tokens, the smallest block of a prefix cache, are alike once in 2^52.
constexpr size_t kPhrases = 8192;
constexpr std::string_view kWords =
    " the of and to in is that for it was on are as with his they at be this from have or by one"
    " had not but what all were when we there can an your which their said if do will each about"
    " how up out them then she many some so these would other into has more her two like him see"
    " time could no make than first been its who now people my made over did down only way find"
    " use may water long little very after words called just where most know get through back"
    " much before go good new write our used me man too any day same right look think also around"
    " another came come work three word must because does part even place well such here take why"
    " things help put years different away again off went old number great tell men say small"
    " every found still between name should home big give air line set own under read last never"
    " us left end along while might next sound below saw something thought both few those always"
    " show large often together asked house world going want school important until form food"
    " keep children feet land side without boy once animals life enough took sometimes four head"
    " above kind began almost live page got earth need far hand high year mother light parts"
    " country father let night following picture being study second eyes soon times story boys"
    " since white days ever paper hard near sentence better best across during today others"
    " however sure means knew its try told young miles sun ways thing whole hear example heard"
    " several change answer room sea against top turned learn point city play toward five using"
    " himself usually";

std::vector<std::string_view> all_words() {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < kWords.size();) {
    const size_t end = std::min(kWords.find(' ', at + 1), kWords.size());
    words.push_back(kWords.substr(at, end - at));
    at = end;
  }
  return words;
}

}  // namespace

PromptText::PromptText() : PromptText(all_words()) {}

PromptText::PromptText(std::vector<std::string_view> words)
    : words_(std::move(words)), phrases_(kPhrases) {
  uint64_t state = 0;
  for (Phrase& phrase : phrases_) {
    size_t length = 0;
    for (uint8_t& end : phrase.ends) {
      state = mix64(state);
      length += words_[state % words_.size()].copy(phrase.text.data() + length,
                                                   phrase.text.size() - length);
      end = static_cast<uint8_t>(length);
    }
  }
}

Result<PromptText> PromptText::create(const tokenizer::Tokenizer& tokenizer) {
  const PromptText text;
  std::vector<std::string_view> single;
  std::vector<TokenId> ids;
  const auto count = [&](const std::string& sample) -> Result<size_t> {
    ids.clear();
    STATOR_CHECK(tokenizer.encode(sample, {}, ids));
    return ids.size();
  };
  for (const std::string_view word : text.words_) {
    // In the middle of text, where a word will stand.
    STATOR_TRY(const size_t with, count(fmt::format(" the{} the", word)));
    STATOR_TRY(const size_t without, count(" the the"));
    if (with == without + 1) {
      single.push_back(word);
    }
  }
  if (single.size() < kWordsMin) {
    return Error(
        Code::kUnsupported,
        fmt::format("only {} of {} common English words are one token in this tokenizer: "
                    "leave --tokenizer out, then prompts have as many words as tokens were "
                    "asked for, or give the bodies with --bodies",
                    single.size(), text.words_.size()));
  }
  return PromptText(std::move(single));
}

void PromptText::append(uint64_t key, uint32_t tokens, std::string& out) const {
  const size_t before = out.size();
  const size_t phrases = (size_t{tokens} + kPhraseWords - 1) / kPhraseWords;
  out.resize_and_overwrite(before + phrases * sizeof(Phrase::text), [&](char* buffer, size_t) {
    char* at = buffer + before;
    uint64_t state = mix64(key);
    for (size_t left = tokens; left > 0;) {
      state = mix64(state);
      const Phrase& phrase = phrases_[state % kPhrases];
      const size_t words = std::min(left, kPhraseWords);
      std::memcpy(at, phrase.text.data(), phrase.text.size());
      at += phrase.ends[words - 1];
      left -= words;
    }
    return static_cast<size_t>(at - buffer);
  });
}

}  // namespace stator::loadgen
