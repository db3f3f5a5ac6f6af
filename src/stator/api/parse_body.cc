// SPDX-License-Identifier: Apache-2.0
#include "stator/api/parse_body.h"

#include "stator/api/detail/json_repair.h"
#include "stator/core/byte_order_mark.h"
#include "stator/text/utf8.h"

namespace stator::api {

JsonRepair mend_utf8(std::string& body) {
  if (body.starts_with(kByteOrderMark)) {
    body.erase(0, kByteOrderMark.size());  // allowed by RFC 8259, section 8.1
  }
  if (text::is_valid_utf8(body)) {
    return JsonRepair::kNone;
  }
  std::string mended;
  mended.reserve(body.size() + text::kReplacementCharacter.size());
  text::append_lossy(mended, body);
  body = std::move(mended);
  return JsonRepair::kInvalidUtf8;
}

bool mend_control_bytes(std::string& body) {
  std::optional<std::string> mended = escape_control_bytes(body);
  if (!mended) {
    return false;
  }
  body = std::move(*mended);
  return true;
}

}  // namespace stator::api
