// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <simdjson.h>

#include <fstream>

#include "stator/json/writer.h"
#include "stator/lab/loadgen/workload.h"

namespace stator::loadgen {
namespace {

constexpr size_t kFileBytesMax = size_t{1} << 30;

class BodyWorkload final : public Workload {
 public:
  BodyWorkload(std::vector<std::string> bodies, std::vector<uint32_t> output_tokens)
      : bodies_(std::move(bodies)), output_tokens_(std::move(output_tokens)) {}
  uint64_t sessions() const override { return 0; }
  uint32_t turns(uint64_t) const override { return 1; }
  Turn turn(uint64_t session, uint32_t) const override {
    return {.output_tokens = output_tokens_[session % bodies_.size()]};
  }
  void append_text(uint64_t, uint32_t, std::string&) const override {}
  const std::string* ready_body(uint64_t session) const override {
    return &bodies_[session % bodies_.size()];
  }

 private:
  std::vector<std::string> bodies_;
  std::vector<uint32_t> output_tokens_;
};

/// The line with what it lacks added behind its opening brace.
std::string complete(const std::string& line, simdjson::dom::object object,
                     const BodyFileOptions& options) {
  std::string added;
  bool streams = options.stream;
  const auto has = [&](std::string_view field) {
    return object.at_key(field).error() == simdjson::SUCCESS;
  };
  if (!has("model")) {
    added += "\"model\":";
    json::append_string(added, options.model);
    added += ',';
  }
  if (has("stream")) {
    streams = object.at_key("stream").get_bool().value_unsafe();
  } else {
    added += streams ? "\"stream\":true," : "\"stream\":false,";
  }
  if (streams && !has("stream_options")) {
    added += "\"stream_options\":{\"include_usage\":true},";
  }
  const size_t brace = line.find('{');
  if (object.size() == 0 && !added.empty()) {
    added.pop_back();
  }
  return line.substr(0, brace + 1) + added + line.substr(brace + 1);
}

}  // namespace

Result<std::unique_ptr<Workload>> load_bodies(const BodyFileOptions& options) {
  std::ifstream file(options.path);
  if (!file) {
    return Error(Code::kNotFound, "cannot open the file of bodies '" + options.path + "'");
  }
  std::vector<std::string> bodies;
  std::vector<uint32_t> output_tokens;
  simdjson::dom::parser parser;
  std::string line;
  size_t bytes = 0;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    simdjson::dom::object object;
    if (parser.parse(line).get(object) != simdjson::SUCCESS) {
      return Error(
          Code::kInvalidArgument,
          fmt::format("{}:{}: expected a request body, a JSON object", options.path, number));
    }
    simdjson::dom::element stream;
    if (object.at_key("stream").get(stream) == simdjson::SUCCESS && !stream.is_bool()) {
      return Error(Code::kInvalidArgument,
                   fmt::format("{}:{}: stream must be true or false", options.path, number));
    }
    bytes += line.size();
    if (bytes > kFileBytesMax) {
      return Error(Code::kTooLarge, fmt::format("{}:{}: more than 1 GiB of bodies; split the file",
                                                options.path, number));
    }
    uint64_t tokens = 0;
    if (object.at_key("max_tokens").get(tokens) != simdjson::SUCCESS) {
      tokens = 0;  // not said: the server decides
    }
    output_tokens.push_back(static_cast<uint32_t>(std::min<uint64_t>(tokens, UINT32_MAX)));
    bodies.push_back(complete(line, object, options));
  }
  if (bodies.empty()) {
    return Error(Code::kInvalidArgument, "the file of bodies '" + options.path + "' has no lines");
  }
  std::unique_ptr<Workload> workload =
      std::make_unique<BodyWorkload>(std::move(bodies), std::move(output_tokens));
  return workload;
}

}  // namespace stator::loadgen
