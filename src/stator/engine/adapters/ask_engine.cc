// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <boost/url/parse.hpp>

#include "stator/engine/adapters/upkeep.h"
#include "stator/net/http_client.h"

namespace stator::engine::adapters {

Result<std::string> host_of(const std::string& url) {
  const auto parsed = boost::urls::parse_uri(url);
  if (!parsed || (parsed->scheme() != "http" && parsed->scheme() != "https") ||
      parsed->encoded_host().empty() || parsed->has_query() ||
      (!parsed->encoded_path().empty() && parsed->encoded_path() != "/")) {
    return Error(Code::kInvalidArgument,
                 fmt::format("engine.url (flag --url): '{}' is not http://HOST:PORT", url));
  }
  return std::string(parsed->encoded_host());
}

namespace {

/// What servers write into "owned_by" of their models, by the kind they are.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOwners = {
    {{"vllm", "vllm"}, {"sglang", "sglang"}, {"llamacpp", "llamacpp"}, {"tensorrt_llm", "trtllm"}}};

Status check_kind(const EngineFacts& facts, std::string_view kind, const std::string& url) {
  const auto known = std::ranges::find(kOwners, facts.owner, &decltype(kOwners)::value_type::first);
  if (kind == "openai" || known == kOwners.end() || known->second == kind) {
    return {};  // a server of somebody else's may well speak like one of these
  }
  return Error(Code::kInvalidArgument,
               fmt::format("{} is a server of engine '{}', not '{}': use --engine {}", url,
                           known->second, kind, known->second));
}

}  // namespace

Result<EngineFacts> ask_engine(const AdapterConfig& config, const Dialect& dialect) {
  EngineFacts facts;
  facts.model = config.upstream_model;
  const net::HttpHeaderList headers = headers_of(config);
  for (const Question& question : dialect.questions()) {
    const std::string path(question.path);
    STATOR_TRY(const net::HttpClientResponse answer,
               net::http_request(
                   {.url = config.url + path, .headers = headers},
                   {.connect_timeout = config.connect_timeout, .timeout = config.connect_timeout}));
    if (answer.status == 200) {
      STATOR_CHECK(dialect.learn(path, answer.body, facts),
                   fmt::format("asking {} for {}", config.url, path));
      continue;
    }
    if (question.optional) {
      continue;
    }
    const Code code = answer.status >= 500 ? Code::kUnavailable : Code::kNotFound;
    return Error(code,
                 fmt::format("{}{} answered {} instead of 200: is it a server of engine '{}'?",
                             config.url, path, answer.status, dialect.traits().kind));
  }
  STATOR_CHECK(check_kind(facts, dialect.traits().kind, config.url));
  return facts;
}

Result<std::unique_ptr<Dialect>> make_dialect(std::string_view kind,
                                              const DialectOptions& options) {
  if (kind == "vllm") {
    return make_vllm_dialect(options);
  }
  if (kind == "sglang") {
    return make_sglang_dialect(options);
  }
  if (kind == "trtllm") {
    return make_trtllm_dialect(options);
  }
  if (kind == "llamacpp") {
    return make_llamacpp_dialect(options);
  }
  if (kind == "openai") {
    return make_openai_dialect(options);
  }
  return Error(Code::kInvalidArgument,
               fmt::format("'{}' is no engine server we can speak to (vllm, sglang, trtllm, "
                           "llamacpp, openai)",
                           kind));
}

}  // namespace stator::engine::adapters
