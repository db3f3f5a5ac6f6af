// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/cli/operator_listener.h"
#include "stator/json/value.h"
#include "stator/net/http_client.h"

namespace stator::cli {
namespace {

constexpr std::string_view kDefaultUrl = "http://127.0.0.1:8000";

std::string server_url(const Invocation& invocation) {
  std::string url = option_of(invocation, "--url", kDefaultUrl);
  while (url.ends_with('/')) {
    url.pop_back();
  }
  return url;
}

/// The server's own words from an error body.
std::string error_text(const std::string& text) {
  const auto body = json::parse(text);
  const std::string_view message = body ? body->text_at({"message"}) : std::string_view();
  return message.empty() ? text.substr(0, 300) : std::string(message);
}

Result<net::HttpClientResponse> fetch(const std::string& url, const net::HttpHeaderList& headers) {
  STATOR_TRY(auto response,
             net::http_request({.method = "GET", .url = url, .headers = headers, .body = {}}),
             "no server at " + url + " (start one with `stator serve MODEL`, or give --url)");
  return response;
}

Result<net::HttpClientResponse> get(const std::string& url, const net::HttpHeaderList& headers) {
  STATOR_TRY(auto response, fetch(url, headers));
  if (response.status != 200) {
    return Error(Code::kInvalidArgument, fmt::format("{} answered {}: {}", url, response.status,
                                                     error_text(response.body)));
  }
  return response;
}

Result<std::string> only_model(const std::string& url, const net::HttpHeaderList& headers) {
  STATOR_TRY(const auto response, get(url + "/v1/models", headers));
  const auto body = json::parse(response.body);
  if (!body || !body->at("data").is_array()) {
    return Error(Code::kCorrupt, url + "/v1/models did not answer with a model list");
  }
  const json::Value::Array& models = body->at("data").elements();
  if (models.size() != 1) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("{} models are served at {}: choose one with --model", models.size(), url));
  }
  return std::string(models.front().at("id").text());
}

/// Prints the text of a chat stream as it comes and collects it.
class ChatPrinter {
 public:
  bool take(std::string_view chunk) {
    raw_ += chunk.substr(0, kRawBytesMax - std::min(kRawBytesMax, raw_.size()));
    pending_ += chunk;
    size_t newline = 0;
    while ((newline = pending_.find('\n')) != std::string::npos) {
      take_line(std::string_view(pending_).substr(0, newline));
      pending_.erase(0, newline + 1);
    }
    return true;
  }
  const std::string& text() const { return text_; }
  const std::string& error() const { return error_; }
  /// The beginning of the answer as sent, for errors that are not a stream.
  const std::string& raw() const { return raw_; }

 private:
  void take_line(std::string_view line) {
    constexpr std::string_view kData = "data: ";
    if (!line.starts_with(kData) || line.ends_with("[DONE]")) {
      return;
    }
    const auto event = json::parse(line.substr(kData.size()));
    if (!event) {
      return;
    }
    if (const json::Value* error = event->find("error")) {
      error_ = std::string(error->at("message").text());
      return;
    }
    for (const json::Value& choice : event->at("choices").elements()) {
      const std::string_view content = choice.text_at({"delta", "content"});
      print(content);
      text_ += content;
    }
  }

  static constexpr size_t kRawBytesMax = 4096;

  std::string raw_;
  std::string pending_;
  std::string text_;
  std::string error_;
};

Status ask(const Invocation& invocation, const std::string& url, const std::string& model,
           json::Value& messages) {
  json::Value request{{"model", model}, {"messages", messages}, {"stream", true}};
  if (invocation.options.contains("--temperature")) {
    request["temperature"] =
        std::strtod(option_of(invocation, "--temperature", "").c_str(), nullptr);
  }
  if (invocation.options.contains("--max-tokens")) {
    request["max_tokens"] =
        std::strtoll(option_of(invocation, "--max-tokens", "").c_str(), nullptr, 10);
  }
  ChatPrinter printer;
  net::HttpClientRequest call;
  call.method = "POST";
  call.url = url + "/v1/chat/completions";
  STATOR_TRY(call.headers, read_credentials(invocation));
  call.headers.emplace_back("Content-Type", "application/json");
  call.body = json::to_text(request);
  const net::HttpClientOptions unhurried{.timeout = Duration::zero(),
                                         .stall_timeout = Duration::zero()};
  STATOR_TRY(const auto response,
             net::http_request(call, unhurried,
                               [&printer](std::string_view chunk) { return printer.take(chunk); }),
             "asking " + url);
  print("\n");
  if (response.status != 200) {
    return Error(Code::kInvalidArgument, fmt::format("{} answered {}: {}", url, response.status,
                                                     error_text(printer.raw())));
  }
  if (!printer.error().empty()) {
    return Error(Code::kUnavailable, printer.error());
  }
  messages.push_back({{"role", "assistant"}, {"content", printer.text()}});
  return {};
}

}  // namespace

Status run_chat(Invocation& invocation) {
  const std::string url = server_url(invocation);
  std::string model = option_of(invocation, "--model", "");
  if (model.empty()) {
    STATOR_TRY(const auto headers, read_credentials(invocation));
    STATOR_TRY(model, only_model(url, headers));
  }
  json::Value messages = json::Value::array();
  if (invocation.options.contains("--system")) {
    messages.push_back({{"role", "system"}, {"content", option_of(invocation, "--system", "")}});
  }
  const bool interactive = app::stdin_is_terminal();
  if (interactive) {
    print(fmt::format("{} at {}. An empty line or Ctrl-D ends.\n", model, url));
  }
  while (true) {
    if (interactive) {
      print("> ");
    }
    const auto line = app::read_line();
    if (!line || line->empty()) {
      return {};
    }
    messages.push_back({{"role", "user"}, {"content", *line}});
    STATOR_CHECK(ask(invocation, url, model, messages));
  }
}

Status run_explain(Invocation& invocation) {
  const std::string id = invocation.positionals.empty() ? "last" : invocation.positionals.front();
  const bool as_json = invocation.options.contains("--json");
  STATOR_TRY(const auto headers, read_credentials(invocation));
  const std::string url =
      server_url(invocation) + "/receipts/" + id + (as_json ? "" : "?format=text");
  STATOR_TRY(const auto response, fetch(url, headers));
  if (response.status != 200) {
    const std::string text = error_text(response.body);
    // A receipt that is not there any more names itself; a route that is not here needs advice.
    const bool elsewhere = wants_operator(response.status) && !text.starts_with("no routing");
    return Error(Code::kInvalidArgument,
                 fmt::format("{} answered {}: {}{}{}", url, response.status, text,
                             elsewhere ? "; " : "", elsewhere ? kOperatorHint : ""));
  }
  print(response.body);
  if (as_json) {
    print("\n");
  }
  return {};
}

}  // namespace stator::cli
