// SPDX-License-Identifier: Apache-2.0
#include "stator/batches/multipart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

namespace stator::batches {
namespace {

Error malformed(std::string_view what) {
  return {Code::kInvalidArgument,
          fmt::format("the body is not well-formed multipart/form-data: {}", what)};
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

/// `form-data; name="x"; filename="y"` → the value of `name`; nothing if it is not there.
std::optional<std::string> find_parameter(std::string_view header, std::string_view name) {
  size_t at = header.find(';');
  while (at != std::string_view::npos) {
    std::string_view rest = trim(header.substr(at + 1));
    const size_t equals = rest.find('=');
    if (equals == std::string_view::npos) {
      return std::nullopt;
    }
    const std::string_view key = trim(rest.substr(0, equals));
    std::string value;
    std::string_view text = rest.substr(equals + 1);
    size_t end = 0;
    if (text.starts_with('"')) {
      for (end = 1; end < text.size() && text[end] != '"'; ++end) {
        end += text[end] == '\\' && end + 1 < text.size() ? 1 : 0;
        value += text[end];
      }
    } else {
      end = std::min(text.find(';'), text.size());
      value = trim(text.substr(0, end));
    }
    if (equals_ignoring_case(key, name)) {
      return value;
    }
    const auto begin = static_cast<size_t>(text.data() - header.data());
    at = header.find(';', std::min(header.size(), begin + end));
  }
  return std::nullopt;
}

Status read_head(std::string_view head, FormPart& part) {
  bool named = false;
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(head.size(), end + 2));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
      return malformed("a header line without a colon");
    }
    if (equals_ignoring_case(trim(line.substr(0, colon)), "content-disposition")) {
      const std::string_view value = line.substr(colon + 1);
      const auto name = find_parameter(value, "name");
      named = name.has_value();
      part.name = name.value_or("");
      part.filename = find_parameter(value, "filename").value_or("");
    }
  }
  return named ? Status() : malformed("a part without a name");
}

}  // namespace

Result<std::vector<FormPart>> parse_form(std::string_view content_type, std::string_view body) {
  const std::string_view type = trim(content_type.substr(0, content_type.find(';')));
  const auto boundary = find_parameter(content_type, "boundary");
  if (!equals_ignoring_case(type, "multipart/form-data") || !boundary || boundary->empty() ||
      boundary->size() > 70) {
    return Error(Code::kUnsupportedMedia,
                 "send the file as multipart/form-data with a boundary, in the field file");
  }
  const std::string mark = "--" + *boundary;
  if (!body.starts_with(mark)) {
    return malformed("it does not begin with its boundary");
  }
  body.remove_prefix(mark.size());
  const std::string between = "\r\n" + mark;
  std::vector<FormPart> parts;
  while (!body.starts_with("--")) {
    if (!body.starts_with("\r\n")) {
      return malformed("a boundary that is followed by something else");
    }
    if (parts.size() == kFormPartsMax) {
      return malformed(fmt::format("more than {} parts", kFormPartsMax));
    }
    body.remove_prefix(2);
    const size_t head_end = body.substr(0, kFormHeadBytesMax).find("\r\n\r\n");
    if (head_end == std::string_view::npos) {
      return malformed("a part whose headers do not end");
    }
    FormPart part;
    STATOR_CHECK(read_head(body.substr(0, head_end), part));
    body.remove_prefix(head_end + 4);
    const size_t end = body.find(between);
    if (end == std::string_view::npos) {
      return malformed("it ends before its last boundary");
    }
    part.content = body.substr(0, end);
    body.remove_prefix(end + between.size());
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace stator::batches
