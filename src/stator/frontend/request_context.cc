// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/request_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "stator/telemetry/trace_headers.h"

namespace stator::frontend {
namespace {

using inference::RequestContext;

constexpr std::array<std::string_view, 3> kPrefixes = {"x-stator-", "x-dynamo-", "x-"};
// A longer id is nobody's.
constexpr size_t kIdBytesMax = 256;

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool starts_with_any_case(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() &&
         std::ranges::equal(text.substr(0, prefix.size()), prefix, {},
                            [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
}

bool is_true(std::string_view text) {
  const std::string word = lower(text);
  return word == "1" || word == "true" || word == "yes" || word == "on";
}

/// The name without the prefix, in lower case; empty: it has another one, or nothing behind it.
std::string metadata_name(std::string_view header, std::string_view prefix) {
  return starts_with_any_case(header, prefix) ? lower(header.substr(prefix.size())) : std::string();
}

bool is_credential(std::string_view name, std::string_view value) {
  return name == "authorization" || value.starts_with("Bearer ");
}

/// What headers say about whose conversation a request belongs to.
struct Said {
  // Of our own spelling first, then Dynamo's, then OpenCode's.
  std::array<std::string_view, kPrefixes.size()> session, parent, final;
  std::string_view claude, claude_agent, claude_parent, codex, codex_parent;

  void take(std::string_view name, std::string_view value) {
    if (name == "thread-id") {
      codex = value;
    } else if (name == "x-codex-parent-thread-id") {
      codex_parent = value;
    } else if (name == "x-claude-code-session-id") {
      claude = value;
    } else if (name == "x-claude-code-agent-id") {
      claude_agent = value;
    } else if (name == "x-claude-code-parent-agent-id") {
      claude_parent = value;
    } else {
      take_prefixed(name, value);
    }
  }

 private:
  void take_prefixed(std::string_view name, std::string_view value) {
    for (size_t i = 0; i < kPrefixes.size(); ++i) {
      if (!name.starts_with(kPrefixes[i])) {
        continue;
      }
      const std::string_view suffix = name.substr(kPrefixes[i].size());
      if (suffix == "session-id") {
        session[i] = value;
      } else if (suffix == "parent-session-id") {
        parent[i] = value;
      } else if (suffix == "session-final") {
        final[i] = value;
      }
    }
  }
};

std::string_view first_of(std::span<const std::string_view> values) {
  const auto given =
      std::ranges::find_if(values, [](std::string_view value) { return !value.empty(); });
  return given == values.end() ? std::string_view() : *given;
}

}  // namespace

/// One pass: most requests have none of these.
SessionIdentity session_identity(const net::HttpRequest& http) {
  Said said;
  for (size_t i = 0; i < http.header_count(); ++i) {
    const net::HttpHeader header = http.header_at(i);
    const char first = header.name.empty() ? ' ' : header.name.front();
    const bool may_be = first == 'x' || first == 'X' || first == 't' || first == 'T';
    if (may_be && !header.value.empty() && header.value.size() <= kIdBytesMax) {
      said.take(lower(header.name), header.value);
    }
  }
  SessionIdentity identity{.session = std::string(first_of(said.session)),
                           .parent = std::string(first_of(said.parent)),
                           .final = is_true(first_of(said.final))};
  if (!identity.session.empty()) {
    return identity;
  }
  if (!said.claude_agent.empty()) {
    identity.session = said.claude_agent;
    identity.parent = said.claude_parent.empty() ? said.claude : said.claude_parent;
  } else if (!said.claude.empty()) {
    identity.session = said.claude;
  } else {
    identity.session = said.codex;
    identity.parent = said.codex_parent;
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
                                                           const SessionIdentity& identity,
                                                           uint32_t keep_s) {
  RequestContext context{.session = identity.session,
                         .parent_session = identity.parent,
                         .session_final = identity.final};
  if (telemetry::TraceHeaders given = telemetry::read_trace_headers(http); given.parent) {
    context.traceparent = given.traceparent;
    context.tracestate = std::move(given.tracestate);
  }
  for (size_t i = 0; i < http.header_count(); ++i) {
    const net::HttpHeader header = http.header_at(i);
    std::string name = metadata_name(header.name, prefix);
    if (!name.empty() && !is_credential(name, header.value)) {
      context.metadata.emplace_back(std::move(name), header.value);
    }
  }
  if (keep_s > 0 && context.metadata.size() < RequestContext::kMetadataMax) {
    context.metadata.emplace_back("cache-control", fmt::format("max-age={}", keep_s));
  }
  std::ranges::sort(context.metadata);
  if (context == RequestContext{}) {
    return nullptr;
  }
  return std::make_shared<const RequestContext>(std::move(context));
}

}  // namespace stator::frontend
