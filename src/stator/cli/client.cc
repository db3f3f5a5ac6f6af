// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <string>

#include "stator/cli/command.h"
#include "stator/cli/terminal.h"
#include "stator/net/http_client.h"

namespace stator::cli {
namespace {

namespace json = boost::json;

constexpr std::string_view kDefaultUrl = "http://127.0.0.1:8000";

std::string option(const Invocation& invocation, std::string_view flag, std::string_view fallback) {
  const auto it = invocation.options.find(flag);
  return it == invocation.options.end() ? std::string(fallback) : it->second;
}

std::string server_url(const Invocation& invocation) {
  std::string url = option(invocation, "--url", kDefaultUrl);
  while (url.ends_with('/')) {
    url.pop_back();
  }
  return url;
}

/// The server's own words from an error body.
std::string error_text(const std::string& text) {
  boost::system::error_code failed;
  const json::value body = json::parse(text, failed);
  if (!failed && body.is_object() && body.as_object().contains("message")) {
    return std::string(body.as_object().at("message").as_string());
  }
  return text.substr(0, 300);
}

Result<net::HttpClientResponse> get(const std::string& url) {
  STATOR_TRY(auto response, net::http_request({.method = "GET", .url = url}),
             "no server at " + url + " (start one with `stator serve MODEL`, or give --url)");
  if (response.status != 200) {
    return Error(Code::kInvalidArgument, fmt::format("{} answered {}: {}", url, response.status,
                                                     error_text(response.body)));
  }
  return response;
}

Result<std::string> only_model(const std::string& url) {
  STATOR_TRY(const auto response, get(url + "/v1/models"));
  boost::system::error_code failed;
  const json::value body = json::parse(response.body, failed);
  if (failed || !body.is_object() || !body.as_object().contains("data")) {
    return Error(Code::kCorrupt, url + "/v1/models did not answer with a model list");
  }
  const json::array& models = body.as_object().at("data").as_array();
  if (models.size() != 1) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("{} models are served at {}: choose one with --model", models.size(), url));
  }
  return std::string(models.front().at("id").as_string());
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
    boost::system::error_code failed;
    const json::value event = json::parse(line.substr(kData.size()), failed);
    if (failed || !event.is_object()) {
      return;
    }
    if (const json::value* error = event.as_object().if_contains("error")) {
      error_ = std::string(error->at("message").as_string());
      return;
    }
    for (const json::value& choice : event.at("choices").as_array()) {
      const json::value* content = choice.at("delta").as_object().if_contains("content");
      if (content != nullptr && content->is_string()) {
        print(content->as_string());
        text_ += content->as_string();
      }
    }
  }

  static constexpr size_t kRawBytesMax = 4096;

  std::string raw_;
  std::string pending_;
  std::string text_;
  std::string error_;
};

Status ask(const Invocation& invocation, const std::string& url, const std::string& model,
           json::array& messages) {
  json::object request{{"model", model}, {"messages", messages}, {"stream", true}};
  if (invocation.options.contains("--temperature")) {
    request["temperature"] = std::strtod(option(invocation, "--temperature", "").c_str(), nullptr);
  }
  if (invocation.options.contains("--max-tokens")) {
    request["max_tokens"] =
        std::strtoll(option(invocation, "--max-tokens", "").c_str(), nullptr, 10);
  }
  ChatPrinter printer;
  net::HttpClientRequest call;
  call.method = "POST";
  call.url = url + "/v1/chat/completions";
  call.headers = {{"Content-Type", "application/json"}};
  call.body = json::serialize(request);
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
  std::string model = option(invocation, "--model", "");
  if (model.empty()) {
    STATOR_TRY(model, only_model(url));
  }
  json::array messages;
  if (invocation.options.contains("--system")) {
    messages.push_back({{"role", "system"}, {"content", option(invocation, "--system", "")}});
  }
  const bool interactive = stdin_is_terminal();
  if (interactive) {
    print(fmt::format("{} at {}. An empty line or Ctrl-D ends.\n", model, url));
  }
  while (true) {
    if (interactive) {
      print("> ");
    }
    const auto line = read_line();
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
  STATOR_TRY(const auto response,
             get(server_url(invocation) + "/receipts/" + id + (as_json ? "" : "?format=text")));
  print(response.body);
  if (as_json) {
    print("\n");
  }
  return {};
}

}  // namespace stator::cli
