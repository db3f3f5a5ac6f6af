// SPDX-License-Identifier: Apache-2.0
#include "stator/access/key_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace stator::access {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(KeyTable, FindsWhatItWasTold) {
  const NewKey user = make_key(Role::kUser, "acme");
  const NewKey boss = make_key(Role::kOperator, "ops");

  const auto table =
      KeyTable::parse("# keys\n\n" + user.line + "  # of acme\r\n\t" + boss.line + "\n");

  ASSERT_TRUE(table) << table.error().message();
  EXPECT_EQ(table->size(), 2U);
  ASSERT_NE(table->find(user.key).entry, nullptr);
  EXPECT_EQ(table->find(user.key).entry->role, Role::kUser);
  EXPECT_EQ(table->find(user.key).entry->tenant, "acme");
  EXPECT_EQ(table->find(boss.key).entry->role, Role::kOperator);
  EXPECT_EQ(table->find(user.key + "x").entry, nullptr);
  EXPECT_EQ(table->find("").entry, nullptr);
}

TEST(KeyTable, HashesAsSha256Does) {
  // FIPS 180-2, appendix B.1.
  const Digest digest = sha256("abc");

  EXPECT_EQ(to_hex({reinterpret_cast<const char*>(digest.data()), digest.size()}),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const auto table = KeyTable::parse(
      "sha256:BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD service x");
  ASSERT_TRUE(table);
  EXPECT_EQ(table->find("abc").entry->role, Role::kService);
}

TEST(KeyTable, MadeKeysDiffer) {
  const NewKey a = make_key(Role::kUser, "t");
  const NewKey b = make_key(Role::kUser, "t");

  EXPECT_THAT(a.key, StartsWith("sk-stator-"));
  EXPECT_EQ(a.key.size(), 10U + 43U);
  EXPECT_NE(a.key, b.key);
  EXPECT_THAT(a.line, ::testing::Not(HasSubstr(a.key)));
}

TEST(KeyTable, NamesTheLineThatIsWrong) {
  const std::string line = make_key(Role::kUser, "t").line;
  const std::string hash = line.substr(0, line.find(' '));
  const std::pair<std::string, std::string> kCases[] = {
      {"hello", "line 1"},
      {"\n\nsha256:12 user t", "line 3"},
      {"sha256:" + std::string(64, 'g') + " user t", "line 1"},
      {hash + " root t", "role 'root'"},
      {hash + " user t extra", "nothing comes after"},
      {hash + " user bad\"name", "tenant's name"},
      {line + "\n" + line, "line 2: this key has a line already"},
  };
  for (const auto& [text, message] : kCases) {
    const auto table = KeyTable::parse(text);
    ASSERT_FALSE(table) << text;
    EXPECT_EQ(table.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(table.error().message(), HasSubstr(message));
  }
}

TEST(KeyTable, RoleAndTenantHaveDefaults) {
  const std::string line = make_key(Role::kUser, "t").line;
  const auto table = KeyTable::parse(line.substr(0, line.find(' ')));

  ASSERT_TRUE(table);
  EXPECT_EQ(table->size(), 1U);
}

}  // namespace
}  // namespace stator::access
