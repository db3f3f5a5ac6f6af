// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "stator/structured/detail/rule_builders.h"

// The texts of JSON Schema's string formats, as anchored regular expressions this module reads.
// They are narrower than the standards where those need more than a regular expression (hosts of at
// most 253 characters), and where validators are: Python's dates have no year 0 and its times no
// second 60, its jsonschema takes no digit behind a zero in front of a relative JSON pointer.

namespace stator::structured {
namespace {

#define STATOR_YEAR "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
#define STATOR_LEAP_YEAR \
  "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define STATOR_DATE                                                            \
  "(" STATOR_YEAR                                                              \
  "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|" \
  "30)|02-(0[1-9]|1[0-9]|2[0-8]))|" STATOR_LEAP_YEAR "-02-29)"
#define STATOR_TIME \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define STATOR_LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define STATOR_SHORT_LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,47}[a-zA-Z0-9])?"
#define STATOR_HOST                                                                           \
  "(" STATOR_LABEL "(\\." STATOR_LABEL "){0,2}|" STATOR_SHORT_LABEL "(\\." STATOR_SHORT_LABEL \
  "){3,4})"
#define STATOR_OCTET "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define STATOR_IPV4 STATOR_OCTET "(\\." STATOR_OCTET "){3}"
#define STATOR_H16 "[0-9a-fA-F]{1,4}"
#define STATOR_LS32 "(" STATOR_H16 ":" STATOR_H16 "|" STATOR_IPV4 ")"
#define STATOR_H16S(most) "(" STATOR_H16 "(:" STATOR_H16 "){0," most "})?"
#define STATOR_IPV6                                                                         \
  "((" STATOR_H16 ":){6}" STATOR_LS32 "|::(" STATOR_H16 ":){5}" STATOR_LS32 "|(" STATOR_H16 \
  ")?::(" STATOR_H16 ":){4}" STATOR_LS32                                                    \
  "|" STATOR_H16S("1") "::(" STATOR_H16 ":){3}" STATOR_LS32 "|" STATOR_H16S(                \
      "2") "::(" STATOR_H16 ":){2}" STATOR_LS32                                             \
           "|" STATOR_H16S("3") "::" STATOR_H16 ":" STATOR_LS32 "|" STATOR_H16S(            \
               "4") "::" STATOR_LS32 "|" STATOR_H16S("5") "::" STATOR_H16                   \
                                                          "|" STATOR_H16S("6") "::)"
// RFC 3986, with `other` beside the unreserved characters: RFC 3987's.
#define STATOR_PLAIN(other) "a-zA-Z0-9._~!$&'()*+,;=" other
#define STATOR_CHARACTER(other) "([" STATOR_PLAIN(other) ":@-]|%[0-9A-Fa-f]{2})"
#define STATOR_SEGMENTS(other) "(/" STATOR_CHARACTER(other) "*)*"
#define STATOR_AUTHORITY(other)                                        \
  "(([" STATOR_PLAIN(other) ":-]|%[0-9A-Fa-f]{2})*@)?(\\[" STATOR_IPV6 \
                            "\\]|([" STATOR_PLAIN(other) "-]|%[0-9A-Fa-f]{2})*)(:[0-9]*)?"
#define STATOR_TAIL(other) \
  "(\\?(" STATOR_CHARACTER(other) "|[/?])*)?(#(" STATOR_CHARACTER(other) "|[/?])*)?"
#define STATOR_ABSOLUTE(other) "/(" STATOR_CHARACTER(other) "+" STATOR_SEGMENTS(other) ")?"
#define STATOR_URI(other)                                                     \
  "[a-zA-Z][a-zA-Z0-9+.-]*:(//" STATOR_AUTHORITY(other)                       \
      STATOR_SEGMENTS(other) "|" STATOR_ABSOLUTE(other) "|" STATOR_CHARACTER( \
          other) "+" STATOR_SEGMENTS(other) ")?" STATOR_TAIL(other)
#define STATOR_REFERENCE(other)                                             \
  "(" STATOR_URI(other) "|(//" STATOR_AUTHORITY(other)                      \
      STATOR_SEGMENTS(other) "|" STATOR_ABSOLUTE(other) "|([" STATOR_PLAIN( \
          other) "@-]|%[0-9A-Fa-f]{2})+" STATOR_SEGMENTS(other) ")?" STATOR_TAIL(other) ")"
#define STATOR_VARIABLE \
  "([a-zA-Z0-9_]|%[0-9A-Fa-f]{2})(\\.?([a-zA-Z0-9_]|%[0-9A-Fa-f]{2}))*(:[1-9][0-9]{0,3}|\\*)?"
#define STATOR_MAILBOX \
  "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+)*@" STATOR_HOST
#define STATOR_DAYS \
  "([0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?|[0-9]{1,9}M([0-9]{1,9}D)?|[0-9]{1,9}D)"
#define STATOR_HOURS \
  "T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S)"
#define STATOR_POINTER "(/([^/~\\x00-\\x1f\\x7f]|~[01])*)*"
#define STATOR_WIDE "\\u00A1-\\uD7FF"

struct Row {
  std::string_view name;
  std::string_view pattern;
};
constexpr auto kRows = std::to_array<Row>({
    {"date", "^" STATOR_DATE "$"},
    {"time", "^" STATOR_TIME "$"},
    {"date-time", "^" STATOR_DATE "T" STATOR_TIME "$"},
    {"uuid", "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
    {"duration", "^P([0-9]{1,9}W|" STATOR_DAYS "(" STATOR_HOURS ")?|" STATOR_HOURS ")$"},
    {"email", "^" STATOR_MAILBOX "$"},
    {"hostname", "^" STATOR_HOST "$"},
    {"ipv4", "^" STATOR_IPV4 "$"},
    {"ipv6", "^" STATOR_IPV6 "$"},
    {"uri", "^" STATOR_URI("") "$"},
    {"uri-reference", "^" STATOR_REFERENCE("") "$"},
    {"uri-template",
     "^([a-zA-Z0-9!#$&()*+,./:;=?@\\[\\]_~-]|%[0-9A-Fa-f]{2}|\\{[+#./;?&=,!@|]?" STATOR_VARIABLE
     "(," STATOR_VARIABLE ")*\\})*$"},
    {"host-name", "^" STATOR_HOST "$"},
    {"idn-hostname", "^" STATOR_HOST "$"},
    {"idn-email", "^" STATOR_MAILBOX "$"},
    {"ip-address", "^" STATOR_IPV4 "$"},
    {"iri", "^" STATOR_URI(STATOR_WIDE) "$"},
    {"iri-reference", "^" STATOR_REFERENCE(STATOR_WIDE) "$"},
    {"color", "^#[0-9a-fA-F]{6}$"},
    {"regex", "^[a-zA-Z0-9 _-]*$"},
    {"json-pointer", "^" STATOR_POINTER "$"},
    {"relative-json-pointer", "^(0|[1-9]{1,8}0?)(#|" STATOR_POINTER ")$"},
});

}  // namespace

std::string_view format_pattern(std::string_view format) {
  const auto found = std::ranges::find(kRows, format, &Row::name);
  return found == kRows.end() ? std::string_view() : found->pattern;
}

}  // namespace stator::structured
