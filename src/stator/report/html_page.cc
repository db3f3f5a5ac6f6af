// SPDX-License-Identifier: Apache-2.0
#include "stator/report/html_page.h"

#include <fmt/format.h>

#include "stator/text/html.h"

namespace stator::report {
namespace {

constexpr std::string_view kStyle = R"(<style>
:root { color-scheme: light dark; --line: #8883; --card: #8881; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1240px; margin: 1.6em auto;
  padding: 0 1em; }
h1 { font-size: 1.5em; margin: 0; } h2 { font-size: 1.1em; margin: 1.8em 0 .6em; }
.sub { opacity: .75; margin: .2em 0 1.2em; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; }
.tile { background: var(--card); border-radius: 8px; padding: 10px 14px; }
.tile b { display: block; font-size: 1.35em; font-variant-numeric: tabular-nums; }
.tile span { font-size: .85em; opacity: .75; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(380px, 1fr)); gap: 12px; }
svg { width: 100%; background: var(--card); border-radius: 8px; }
svg text { font-size: 11px; fill: currentColor; } svg .title { font-size: 13px; font-weight: 600; }
svg .grid { stroke: var(--line); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: 3px 10px; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
td:first-child, th:first-child { text-align: left; }
.bad { background: #c0392b; color: #fff; padding: 8px 14px; border-radius: 8px; }
</style></head><body>
)";

}  // namespace

std::string page_begin(std::string_view title) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n{}",
      text::escape_html(title), kStyle);
}

std::string_view page_end() {
  return "</body></html>\n";
}

}  // namespace stator::report
