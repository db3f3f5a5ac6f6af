// SPDX-License-Identifier: Apache-2.0
#include "stator/router/receipt_findings.h"

#include <gtest/gtest.h>

namespace stator::router {
namespace {

constexpr WorkerKey kA{WorkerId(1), 0};
constexpr WorkerKey kB{WorkerId(2), 0};

Receipt receipt_of(std::string id) {
  Receipt receipt;
  receipt.request_id = std::move(id);
  receipt.chosen = kA;
  receipt.candidates = {{.worker = kB, .overlap_blocks = 9}, {.worker = kA, .overlap_blocks = 10}};
  return receipt;
}

TEST(ReceiptFindings, AReceiptClaimsNoMoreThanTheEngineFound) {
  ReceiptFindings findings;
  findings.put("turn", kA, 3);
  Receipt receipt = receipt_of("turn");

  EXPECT_EQ(findings.correct(receipt), 10U);
  EXPECT_EQ(receipt.candidates[1].overlap_blocks, 3U);
  EXPECT_EQ(receipt.candidates[0].overlap_blocks, 9U);
  EXPECT_FALSE(findings.correct(receipt));  // nothing left to correct
}

TEST(ReceiptFindings, LeavesReceiptsOfOthersAlone) {
  ReceiptFindings findings;
  findings.put("other", kA, 1);
  findings.put("turn", kB, 2);  // where it was before it moved
  findings.put("turn", kA, 12);
  Receipt receipt = receipt_of("turn");

  EXPECT_FALSE(findings.correct(receipt));
  EXPECT_EQ(receipt.candidates[1].overlap_blocks, 10U);
}

TEST(ReceiptFindings, KeepsTheLastOnes) {
  ReceiptFindings findings(2);
  findings.put("first", kA, 1);
  findings.put("second", kA, 2);
  findings.put("third", kA, 3);
  Receipt first = receipt_of("first");
  Receipt second = receipt_of("second");

  EXPECT_FALSE(findings.correct(first));
  EXPECT_EQ(findings.correct(second), 10U);
}

}  // namespace
}  // namespace stator::router
