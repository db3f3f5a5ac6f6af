// SPDX-License-Identifier: Apache-2.0
#include "stator/report/html_page.h"

#include <gmock/gmock.h>

namespace stator::report {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(HtmlPage, EscapesItsTitleAndLoadsNothing) {
  const std::string page = page_begin("a < b & \"c\"") + std::string(page_end());

  EXPECT_THAT(page, StartsWith("<!doctype html>\n"));
  EXPECT_THAT(page, HasSubstr("<title>a &lt; b &amp; &#34;c&#34;</title>"));
  EXPECT_THAT(page, EndsWith("</html>\n"));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
}

}  // namespace
}  // namespace stator::report
