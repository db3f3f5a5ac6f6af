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
  EXPECT_THAT(page, HasSubstr("<title>a &lt; b &amp; &quot;c&quot;</title>"));
  EXPECT_THAT(page, EndsWith("</html>\n"));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
}

TEST(HtmlPage, EscapesText) {
  EXPECT_EQ(escape_html("<b>1 & 2</b>"), "&lt;b&gt;1 &amp; 2&lt;/b&gt;");
}

}  // namespace
}  // namespace stator::report
