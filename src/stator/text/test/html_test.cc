// SPDX-License-Identifier: Apache-2.0
#include "stator/text/html.h"

#include <gtest/gtest.h>

namespace stator::text {
namespace {

TEST(EscapeHtml, WhatHtmlReadsBecomesEntitiesAndNothingElseChanges) {
  EXPECT_EQ(escape_html("<a href=\"x\">R&D's ünits</a>"),
            "&lt;a href=&#34;x&#34;&gt;R&amp;D&#39;s ünits&lt;/a&gt;");
  EXPECT_EQ(escape_html(""), "");
}

}  // namespace
}  // namespace stator::text
