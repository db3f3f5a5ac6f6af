// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/request_builder.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "stator/json/writer.h"

namespace stator::loadgen {
namespace {

constexpr std::string_view kUserBegin = R"({"role":"user","content":")";

bool has_line_break(std::string_view text) {
  return text.find_first_of("\r\n") != std::string_view::npos;
}

std::string make_head(const RequestOptions& options) {
  std::string head = fmt::format("POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: stator-bench\r\n",
                                 options.path, options.host);
  if (!options.api_key.empty()) {
    head += "Authorization: Bearer " + options.api_key + "\r\n";
  }
  for (const auto& [name, value] : options.headers) {
    head += fmt::format("{}: {}\r\n", name, value);
  }
  return head + "Content-Type: application/json\r\nContent-Length: ";
}

}  // namespace

Result<RequestBuilder> RequestBuilder::create(const RequestOptions& options,
                                              const Workload& workload) {
  if (has_line_break(options.api_key) || has_line_break(options.path) ||
      std::ranges::any_of(options.headers, [](const auto& header) {
        return header.first.empty() || has_line_break(header.first) ||
               has_line_break(header.second);
      })) {
    return Error(Code::kInvalidArgument,
                 "--api-key, --endpoint and --header take a single line each");
  }
  RequestBuilder builder(options, workload);
  std::string extra;
  if (!options.extra_body.empty()) {
    simdjson::dom::parser parser;
    simdjson::dom::object object;
    if (parser.parse(options.extra_body).get(object) != simdjson::SUCCESS) {
      return Error(Code::kInvalidArgument,
                   "--extra-body must be a JSON object such as {\"temperature\":0}, not '" +
                       options.extra_body + "'");
    }
    for (const auto& [name, value] : object) {
      builder.extra_fields_.emplace_back(name);
      extra += ',';
      json::append_string(extra, name);
      extra += ':' + simdjson::to_string(value);
    }
  }
  if (builder.own("model")) {
    builder.begin_ += "\"model\":";
    json::append_string(builder.begin_, options.model);
    builder.begin_ += ',';
  }
  builder.begin_ += options.endpoint == Endpoint::kChat ? "\"messages\":[" : "\"prompt\":\"";
  builder.writes_max_tokens_ = builder.own("max_tokens") && builder.own("max_completion_tokens");
  if (builder.own("stream")) {
    builder.end_ += options.stream ? ",\"stream\":true" : ",\"stream\":false";
  }
  if (options.stream && options.include_usage && builder.own("stream_options")) {
    builder.end_ += ",\"stream_options\":{\"include_usage\":true}";
  }
  if (options.ignore_eos && builder.own("ignore_eos")) {
    builder.end_ += ",\"ignore_eos\":true";
  }
  builder.end_ += extra + "}";
  return builder;
}

RequestBuilder::RequestBuilder(const RequestOptions& options, const Workload& workload)
    : workload_(&workload), endpoint_(options.endpoint), head_(make_head(options)), begin_("{") {}

bool RequestBuilder::own(std::string_view field) const {
  return std::ranges::find(extra_fields_, field) == extra_fields_.end();
}

void RequestBuilder::build(uint64_t session, uint32_t turn, std::string_view history,
                           std::string& out) const {
  const std::string* ready = workload_->ready_body(session);
  std::string body;
  if (ready == nullptr) {
    const Turn plan = workload_->turn(session, turn);
    body.reserve(begin_.size() + end_.size() + history.size() + size_t{6} * plan.input_tokens +
                 128);
    append_body(session, turn, history, body);
  }
  const std::string& content = ready == nullptr ? body : *ready;
  out.clear();
  out.reserve(head_.size() + content.size() + 32);
  out += head_;
  fmt::format_to(std::back_inserter(out), "{}\r\n\r\n", content.size());
  out += content;
}

void RequestBuilder::append_body(uint64_t session, uint32_t turn, std::string_view history,
                                 std::string& body) const {
  body += begin_;
  body += history;
  if (endpoint_ == Endpoint::kChat) {
    body += kUserBegin;
    workload_->append_text(session, turn, body);
    body += "\"}]";
  } else {
    workload_->append_text(session, turn, body);
    body += '"';
  }
  const uint32_t output_tokens = workload_->turn(session, turn).output_tokens;
  if (output_tokens > 0 && writes_max_tokens_) {
    fmt::format_to(std::back_inserter(body), ",\"max_tokens\":{}", output_tokens);
  }
  body += end_;
}

void RequestBuilder::add_to_history(uint64_t session, uint32_t turn, std::string_view answer,
                                    std::string& history) const {
  if (endpoint_ == Endpoint::kChat) {
    history += kUserBegin;
    workload_->append_text(session, turn, history);
    history += R"("},{"role":"assistant","content":")";
    history += answer;
    history += "\"},";
  } else {
    workload_->append_text(session, turn, history);
    history += answer;
  }
}

}  // namespace stator::loadgen
