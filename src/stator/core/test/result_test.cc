// SPDX-License-Identifier: Apache-2.0
#include "stator/core/result.h"

#include <gtest/gtest.h>

#include <set>
#include <type_traits>

namespace stator {
namespace {

static_assert(std::is_nothrow_move_constructible_v<Error>);
static_assert(!std::is_copy_constructible_v<Error>);
static_assert(sizeof(Error) == sizeof(void*));

Result<int> half(int value) {
  if (value % 2 != 0) {
    return Error(Code::kInvalidArgument, "value must be even");
  }
  return value / 2;
}

Result<int> quarter(int value) {
  STATOR_TRY(int once, half(value), "first halving");
  STATOR_TRY(int twice, half(once), "second halving");
  return twice;
}

Status check_quarter(int value) {
  STATOR_CHECK(quarter(value), "checking");
  return {};
}

TEST(Result, TryPassesTheValueOn) {
  EXPECT_EQ(quarter(8).value(), 2);
}

TEST(Result, TryReturnsTheErrorWithItsContexts) {
  const Status status = check_quarter(6);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(status.error().message(), "checking: second halving: value must be even");
  EXPECT_EQ(status.error().to_string(),
            "invalid_argument: checking: second halving: value must be even");
}

TEST(Result, AnErrorRemembersWhereItWasMade) {
  const auto failed = half(3);
  EXPECT_NE(std::string_view(failed.error().where().file_name()).find("result_test.cc"),
            std::string_view::npos);
}

TEST(Result, CloneIsIndependent) {
  Error first(Code::kIo, "disk");
  const Error second = first.clone();
  first = std::move(first).with_context("writing").with_code(Code::kCorrupt);
  EXPECT_EQ(second.message(), "disk");
  EXPECT_EQ(second.code(), Code::kIo);
  EXPECT_EQ(first.code(), Code::kCorrupt);
}

TEST(ErrorCode, EveryRowHasAUniqueNameAndAValidHttpStatus) {
  std::set<std::string_view> names;
  for (int i = 0; i < kCodeCount; ++i) {
    const auto code = static_cast<Code>(i);
    EXPECT_TRUE(names.insert(describe(code).name).second);
    EXPECT_GE(describe(code).http_status, 400);
    EXPECT_LT(describe(code).http_status, 600);
    EXPECT_EQ(code_from_name(describe(code).name), code);
  }
}

TEST(ErrorCode, NamesFromANewerPeerBecomeInternal) {
  EXPECT_EQ(code_from_name("quantum_decoherence"), Code::kInternal);
}

TEST(ErrorCode, GrpcStatusesComeBackAsTheMostGeneralCode) {
  EXPECT_EQ(code_from_grpc(14), Code::kUnavailable);
  EXPECT_EQ(code_from_grpc(3), Code::kInvalidArgument);
  EXPECT_EQ(code_from_grpc(99), Code::kInternal);
}

}  // namespace
}  // namespace stator
