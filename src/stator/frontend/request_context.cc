// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/request_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "stator/telemetry/trace_context.h"

namespace stator::frontend {
namespace {

using engine::RequestContext;

constexpr std::array<std::string_view, 3> kPrefixes = {"x-stator-", "x-dynamo-", "x-"};
// A longer id is nobody's.
constexpr size_t kIdBytesMax = 256;

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

/// The first of these headers that says something.
template <size_t Count>
std::string first_of(const net::HttpRequest& http, std::array<std::string_view, Count> names) {
  for (const std::string_view name : names) {
    const auto value = http.header(name);
    if (value && !value->empty() && value->size() <= kIdBytesMax) {
      return std::string(*value);
    }
  }
  return {};
}

std::string prefixed(const net::HttpRequest& http, std::string_view suffix) {
  for (const std::string_view prefix : kPrefixes) {
    const auto value = http.header(std::string(prefix) + std::string(suffix));
    if (value && !value->empty() && value->size() <= kIdBytesMax) {
      return std::string(*value);
    }
  }
  return {};
}

bool is_true(std::string_view text) {
  const std::string word = lower(text);
  return word == "1" || word == "true" || word == "yes" || word == "on";
}

/// The name without the prefix, in lower case; empty: it has another one, or nothing behind it.
std::string metadata_name(std::string_view header, std::string_view prefix) {
  std::string name = lower(header);
  return name.size() > prefix.size() && name.starts_with(prefix) ? name.substr(prefix.size())
                                                                 : std::string();
}

bool is_credential(std::string_view name, std::string_view value) {
  return name == "authorization" || value.starts_with("Bearer ");
}

}  // namespace

SessionIdentity session_identity(const net::HttpRequest& http) {
  SessionIdentity identity;
  identity.session = prefixed(http, "session-id");
  identity.parent = prefixed(http, "parent-session-id");
  identity.final = is_true(prefixed(http, "session-final"));
  if (!identity.session.empty()) {
    return identity;
  }
  const std::string claude = first_of<1>(http, {"x-claude-code-session-id"});
  const std::string agent = first_of<1>(http, {"x-claude-code-agent-id"});
  if (!agent.empty()) {
    identity.session = agent;
    const std::string parent = first_of<1>(http, {"x-claude-code-parent-agent-id"});
    identity.parent = parent.empty() ? claude : parent;
  } else if (!claude.empty()) {
    identity.session = claude;
  } else {
    identity.session = first_of<1>(http, {"thread-id"});
    identity.parent = first_of<1>(http, {"x-codex-parent-thread-id"});
  }
  return identity;
}

std::optional<std::string> check_metadata(const net::HttpRequest& http, std::string_view prefix) {
  size_t count = 0;
  size_t bytes = 0;
  for (size_t i = 0; i < http.header_count(); ++i) {
    const net::HttpHeader header = http.header_at(i);
    const std::string name = metadata_name(header.name, prefix);
    if (!name.empty()) {
      ++count;
      bytes += name.size() + header.value.size();
    }
  }
  if (count <= RequestContext::kMetadataMax && bytes <= RequestContext::kMetadataBytesMax) {
    return std::nullopt;
  }
  return fmt::format(
      "{} metadata headers ({}*) with {} bytes: at most {} and {} bytes are forwarded", count,
      prefix, bytes, RequestContext::kMetadataMax, RequestContext::kMetadataBytesMax);
}

std::shared_ptr<const RequestContext> make_request_context(const net::HttpRequest& http,
                                                           std::string_view prefix,
                                                           const SessionIdentity& identity) {
  RequestContext context{.session = identity.session,
                         .parent_session = identity.parent,
                         .session_final = identity.final};
  const std::string_view given = http.header("traceparent").value_or("");
  if (telemetry::parse_traceparent(given)) {
    context.traceparent = given;
    context.tracestate = telemetry::check_tracestate(http.header("tracestate").value_or(""));
  }
  for (size_t i = 0; i < http.header_count(); ++i) {
    const net::HttpHeader header = http.header_at(i);
    std::string name = metadata_name(header.name, prefix);
    if (!name.empty() && !is_credential(name, header.value)) {
      context.metadata.emplace_back(std::move(name), header.value);
    }
  }
  std::ranges::sort(context.metadata);
  if (context == RequestContext{}) {
    return nullptr;
  }
  return std::make_shared<const RequestContext>(std::move(context));
}

}  // namespace stator::frontend
