// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "stator/structured/detail/rule_builders.h"

// The texts of JSON Schema's string formats, as regular expressions this module reads. They are
// narrower than the standards where those need more than a regular expression (no 29 February,
// hosts of at most 253 characters), and where validators are: Python's dates have no year 0, its
// jsonschema takes no digit behind a zero in front of a relative JSON pointer.

namespace stator::structured {
namespace {

#define STATOR_YEAR "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
#define STATOR_DATE                                                            \
  STATOR_YEAR                                                                  \
  "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|" \
  "30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define STATOR_TIME \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define STATOR_LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define STATOR_HOST_LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,59}[a-zA-Z0-9])?"
#define STATOR_OCTET "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define STATOR_IPV4 STATOR_OCTET "(\\." STATOR_OCTET "){3}"
#define STATOR_H16 "[0-9a-fA-F]{1,4}"
#define STATOR_IPV6                                                                           \
  "(" STATOR_H16 "(:" STATOR_H16 "){7}|(" STATOR_H16 "(:" STATOR_H16 "){0,2})?::(" STATOR_H16 \
  "(:" STATOR_H16 "){0,3})?)"
#define STATOR_URI_CHAR "([a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define STATOR_URI_TAIL \
  "(/" STATOR_URI_CHAR "*)*(\\?(" STATOR_URI_CHAR "|[/?])*)?(#(" STATOR_URI_CHAR "|[/?])*)?"
#define STATOR_URI                                              \
  "[a-zA-Z][a-zA-Z0-9+.-]*://" STATOR_LABEL "(\\." STATOR_LABEL \
  "){0,8}(:[0-9]{1,4})?" STATOR_URI_TAIL

struct Row {
  std::string_view name;
  std::string_view pattern;
};
constexpr auto kRows = std::to_array<Row>({
    {"date", STATOR_DATE},
    {"time", STATOR_TIME},
    {"date-time", STATOR_DATE "T" STATOR_TIME},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"duration",
     "P([0-9]{1,9}W|([0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?|[0-9]{1,9}M([0-9]{1,9}D)?|"
     "[0-9]{1,9}D)(T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|"
     "[0-9]{1,9}S))?|T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|"
     "[0-9]{1,9}S))"},
    {"email",
     "[a-zA-Z0-9_+-]+(\\.[a-zA-Z0-9_+-]+)*@" STATOR_HOST_LABEL "(\\." STATOR_HOST_LABEL "){1,3}"},
    {"hostname", STATOR_HOST_LABEL "(\\." STATOR_HOST_LABEL "){0,3}"},
    {"ipv4", STATOR_IPV4},
    {"ipv6", STATOR_IPV6},
    {"uri", STATOR_URI},
    {"uri-reference", "(" STATOR_URI "|(/" STATOR_URI_CHAR "+)" STATOR_URI_TAIL ")"},
    {"uri-template",
     STATOR_URI "(\\{[+#./;?&]?[a-zA-Z0-9_]+(,[a-zA-Z0-9_]+)*\\}" STATOR_URI_TAIL ")*"},
    {"host-name", STATOR_HOST_LABEL "(\\." STATOR_HOST_LABEL "){0,3}"},
    {"idn-hostname", STATOR_HOST_LABEL "(\\." STATOR_HOST_LABEL "){0,3}"},
    {"idn-email",
     "[a-zA-Z0-9_+-]+(\\.[a-zA-Z0-9_+-]+)*@" STATOR_HOST_LABEL "(\\." STATOR_HOST_LABEL "){1,3}"},
    {"ip-address", STATOR_IPV4},
    {"iri", STATOR_URI},
    {"iri-reference", "(" STATOR_URI "|(/" STATOR_URI_CHAR "+)" STATOR_URI_TAIL ")"},
    {"color", "#[0-9a-fA-F]{6}"},
    {"regex", "[a-zA-Z0-9 _-]*"},
    {"json-pointer", "(/([a-zA-Z0-9_.$@:-]|~[01])*)*"},
    {"relative-json-pointer", "(0|[1-9]{1,8}0?)(#|(/([a-zA-Z0-9_.$@:-]|~[01])*)*)"},
});

}  // namespace

std::string_view format_pattern(std::string_view format) {
  const auto found = std::ranges::find(kRows, format, &Row::name);
  return found == kRows.end() ? std::string_view() : found->pattern;
}

}  // namespace stator::structured
