// SPDX-License-Identifier: Apache-2.0
#include "stator/batches/batch_lines.h"

#include <gtest/gtest.h>

#include "stator/json/value.h"

namespace stator::batches {
namespace {

std::string line(std::string_view id, std::string_view extra = "") {
  return R"({"custom_id":")" + std::string(id) +
         R"(","method":"POST","url":"/v1/completions","body":{"model":"m")" + std::string(extra) +
         "}}\n";
}

std::string first_error(const std::string& file, uint32_t lines_max = 10) {
  const LineCheck check = check_lines(file, "/v1/completions", lines_max);
  return check.errors.empty() ? "none"
                              : check.errors[0].code + " " + std::to_string(check.errors[0].line);
}

TEST(BatchLines, ReadsRequests) {
  const std::string file = "\xEF\xBB\xBF" + line("a") + "\r\n \n" + line("b");
  const LineCheck check = check_lines(file, "/v1/completions", 10);

  EXPECT_TRUE(check.errors.empty());
  ASSERT_EQ(check.lines.size(), 2U);
  EXPECT_EQ(check.lines[1].index, 1U);
  EXPECT_EQ(check.lines[1].custom_id, "b");
  EXPECT_EQ(check.lines[1].body, R"({"model":"m"})");
}

TEST(BatchLines, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(first_error(line("a")), "none");
  EXPECT_EQ(first_error(line("a") + "{"), "invalid_json_line 2");
  EXPECT_EQ(first_error(line("a") + "[]"), "invalid_json_line 2");
  EXPECT_EQ(first_error(line("a") + "\xFF"), "invalid_json_line 2");
  EXPECT_EQ(first_error(line("a") + "\n" + line("a")), "duplicate_custom_id 3");
  EXPECT_EQ(first_error(line("")), "missing_required_parameter 1");
  EXPECT_EQ(first_error(R"({"custom_id":"a","method":"GET","url":"/v1/completions","body":{}})"),
            "invalid_method 1");
  EXPECT_EQ(first_error(R"({"custom_id":"a","method":"POST","url":"/v1/x","body":{}})"),
            "mismatched_endpoint 1");
  EXPECT_EQ(first_error(R"({"custom_id":"a","method":"POST","url":"/v1/completions"})"),
            "missing_required_parameter 1");
  EXPECT_EQ(first_error(line("a", R"(,"stream":true)")), "invalid_request 1");
  EXPECT_EQ(first_error(line("a") + line("b"), 1), "token_limit_exceeded 2");
  EXPECT_EQ(first_error(""), "empty_file 0");
}

TEST(BatchLines, WritesResultsOfOneLine) {
  EXPECT_EQ(format_result(
                "batch_7",
                {.index = 3, .custom_id = "a", .request_id = "r", .status = 200, .body = "{\n}"}),
            R"({"id":"batch_req_7_3","custom_id":"a","response":{"status_code":200,)"
            R"("request_id":"r","body":{ }},"error":null})"
            "\n");
  EXPECT_EQ(
      format_result(
          "batch_7",
          {.index = 4, .custom_id = "b", .error_code = "batch_expired", .error_message = "late"}),
      R"({"id":"batch_req_7_4","custom_id":"b","response":null,)"
      R"("error":{"code":"batch_expired","message":"late"}})"
      "\n");
  EXPECT_TRUE(json::parse(format_result("batch_7", {.status = 502, .body = "<html>\xFF\n"})));
}

TEST(BatchLines, KeepsResults) {
  const auto kept = decode_kept(encode_kept({70000, true, "line\n"}));

  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->index, 70000U);
  EXPECT_TRUE(kept->good);
  EXPECT_EQ(kept->line, "line\n");
  EXPECT_FALSE(decode_kept("abc"));
}

}  // namespace
}  // namespace stator::batches
