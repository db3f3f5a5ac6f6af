// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/piece_scanner.h"

#include "stator/core/random.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace stator::tokenizer {
namespace {

constexpr ScannerFamily kFamilies[] = {
    ScannerFamily::kGpt2,        ScannerFamily::kCl100k,
    ScannerFamily::kQwen2,       ScannerFamily::kQwen35,
    ScannerFamily::kO200k,       ScannerFamily::kTekken,
    ScannerFamily::kKimiK2,      ScannerFamily::kStarcoder,
    ScannerFamily::kDeepseek3,   ScannerFamily::kDeepseekCoder,
    ScannerFamily::kSeedCoder,   ScannerFamily::kFalcon,
    ScannerFamily::kSigns,       ScannerFamily::kFalconBytes,
    ScannerFamily::kDeepseekLlm, ScannerFamily::kDeepseekLlmNumbers,
    ScannerFamily::kBloom,       ScannerFamily::kViking,
    ScannerFamily::kExaoneMoe};

std::vector<SimdLevel> levels() {
  std::vector<SimdLevel> levels;
  for (const SimdLevel level :
       {SimdLevel::kPortable, SimdLevel::kSse2, SimdLevel::kAvx2, SimdLevel::kAvx512}) {
    if (level <= simd_level()) {
      levels.push_back(level);
    }
  }
  return levels;
}

std::vector<uint32_t> one_by_one(ScannerFamily family, std::string_view text) {
  std::vector<uint32_t> ends;
  for (size_t at = 0; at < text.size();) {
    at = scan_piece(family, text, at);
    ends.push_back(static_cast<uint32_t>(at));
  }
  return ends;
}

std::vector<uint32_t> at_once(const PieceScanner& scanner, std::string_view text, size_t batch) {
  std::vector<uint32_t> ends;
  std::vector<uint32_t> buffer(batch);
  for (size_t at = 0; at < text.size();) {
    const size_t count = scanner.scan(text, at, buffer);
    ends.insert(ends.end(), buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(count));
    EXPECT_GT(count, 0);
  }
  return ends;
}

/// Mostly ASCII, so that borders fall everywhere in the blocks of 64 bytes.
std::string random_text(Random& random, size_t parts) {
  static const std::string kParts[] = {
      "a",   "the",  "Word", "HTTPServer", "isOK",  " ",       " ",    " ",    " ",   "  ",  "    ",
      "\n",  "\n\n", "\r\n", "\t",         " \n",   "\n ",     ";\n",  "'s",   "'S",  "'re", "'LL",
      "'ve", "'sun", "'",    "''",         "don't", "it's're", "(",    "((",   "...", "/",   "\n/",
      "!",   "=",    "1",    "12",         "345",   "6789",    "\x1c", "\x0b", "\x7f"};
  static const std::string kRare[] = {"\u00e9",       "\u4e2d\u6587",
                                      "\u017f",       "\u0301",
                                      "\u00a0",       "\u3000",
                                      "\u201c",       "\u0661",
                                      "\U0001F600",   "\u0441\u043b\u043e\u0432\u043e",
                                      "na\u00efve",   "\u00e9t\u00e9",
                                      "\u00c9cole",   "\u0421\u0421\u0421\u0420",
                                      "\u0438\u041c", "\u01c5",
                                      "i\u00c9",      "'\u017f",
                                      "\u30fb",       "\uac00",
                                      "\u0967",       "\u02b0",
                                      "\u00bd",       "\u00fc",
                                      "\u2039",       "\u1e00",
                                      "\u2003"};
  std::string text;
  const uint64_t rare_percent = random.below(5) * 6;
  for (size_t i = 0; i < parts; ++i) {
    text += random.below(100) < rare_percent ? kRare[random.below(std::size(kRare))]
                                             : kParts[random.below(std::size(kParts))];
  }
  return text;
}

TEST(PieceScanner, EqualsScanningPieceByPieceAtEveryLevel) {
  Random random(11);
  for (int round = 0; round < 1500; ++round) {
    const std::string text = random_text(random, 1 + random.below(200));
    for (const ScannerFamily family : kFamilies) {
      const std::vector<uint32_t> expected = one_by_one(family, text);
      for (const SimdLevel level : levels()) {
        ASSERT_EQ(at_once(PieceScanner(family, level), text, 256), expected)
            << testing::PrintToString(text) << static_cast<int>(family);
      }
    }
  }
}

TEST(PieceScanner, GoesOnWhereItStoppedForWantOfRoom) {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += "a b";
  }
  const PieceScanner scanner(ScannerFamily::kQwen2);

  EXPECT_EQ(at_once(scanner, text, PieceScanner::kEndsMin),
            one_by_one(ScannerFamily::kQwen2, text));
}

TEST(PieceScanner, TakesRunsLongerThanABlockWhole) {
  const PieceScanner scanner(ScannerFamily::kCl100k);
  for (const char c : {'x', ' ', '-', '\n'}) {
    const std::string text = "a" + std::string(1000, c) + "\u00e9b";

    EXPECT_EQ(at_once(scanner, text, 256), one_by_one(ScannerFamily::kCl100k, text));
  }
}

TEST(AsciiMasks, AreTheSameAtEveryLevel) {
  Random random(12);
  for (int round = 0; round < 2000; ++round) {
    std::array<char, kMaskBytes> text;
    for (char& c : text) {
      c = static_cast<char>(random.below(256));
    }
    AsciiMasks expected;
    ascii_classifier(SimdLevel::kPortable)(text.data(), expected);
    for (const SimdLevel level : levels()) {
      AsciiMasks masks;
      ascii_classifier(level)(text.data(), masks);

      ASSERT_EQ(masks, expected) << static_cast<int>(level);
    }
  }
}

}  // namespace
}  // namespace stator::tokenizer
