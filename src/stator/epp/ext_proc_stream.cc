// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/ext_proc_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "stator/epp/token_data.h"
#include "stator/json/writer.h"

namespace stator::epp {
namespace {

constexpr std::string_view kDestination = "x-gateway-destination-endpoint";
constexpr std::string_view kSubset = "x-gateway-destination-endpoint-subset";
constexpr std::string_view kServed = "x-gateway-destination-endpoint-served";
constexpr std::string_view kObjective = "x-gateway-inference-objective";
constexpr std::string_view kRewrite = "x-gateway-model-name-rewrite";
constexpr std::string_view kForced = "test-epp-endpoint-selection";
constexpr std::string_view kServedEcho = "x-conformance-test-served-endpoint";
/// What only gateways may say to us: a client's own are taken out.
constexpr std::array<std::string_view, 4> kControlHeaders = {
    "x-gateway-destination-endpoint-subset", "x-gateway-inference-objective",
    "x-gateway-inference-fairness-id", "x-gateway-model-name-rewrite"};
/// Envoy takes messages of 64 KiB.
constexpr size_t kPieceMax = 62'000;
constexpr int kFailedPrecondition = 9;

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    while (!part.empty() && part.front() == ' ') {
      part.remove_prefix(1);
    }
    while (!part.empty() && part.back() == ' ') {
      part.remove_suffix(1);
    }
    if (!part.empty()) {
      parts.emplace_back(part);
    }
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

void set_header(wire::HeaderMutation& mutation, std::string_view key, std::string_view value) {
  wire::HeaderValueOption& option = *mutation.add_set_headers();
  option.mutable_header()->set_key(std::string(key));
  option.mutable_header()->set_raw_value(std::string(value));
  option.set_append_action(wire::HeaderValueOption::OVERWRITE_IF_EXISTS_OR_ADD);
}

StreamAnswer answer_with(wire::ProcessingResponse response) {
  StreamAnswer answer;
  answer.responses.push_back(std::move(response));
  return answer;
}

std::string_view mode_name(wire::ProtocolConfiguration::BodySendMode mode) {
  return wire::ProtocolConfiguration::BodySendMode_Name(mode);
}

const google::protobuf::Value* find_field(const wire::Metadata& metadata, std::string_view space,
                                          std::string_view key) {
  const auto found = metadata.filter_metadata().find(std::string(space));
  if (found == metadata.filter_metadata().end()) {
    return nullptr;
  }
  const auto field = found->second.fields().find(std::string(key));
  return field == found->second.fields().end() ? nullptr : &field->second;
}

}  // namespace

wire::ProcessingResponse immediate(int status, std::string_view message, std::string_view reason) {
  wire::ProcessingResponse response;
  wire::ImmediateResponse& now = *response.mutable_immediate_response();
  now.mutable_status()->set_code(status);
  set_header(*now.mutable_headers(), "content-type", "application/json");
  if (!reason.empty()) {
    set_header(*now.mutable_headers(), "x-llm-d-request-dropped-reason", reason);
  }
  std::string body;
  json::Writer(body)
      .begin_object()
      .key("error")
      .begin_object()
      .key("message")
      .value(message)
      .key("type")
      .value(status == 400 || status == 413 ? "invalid_request_error" : "service_unavailable")
      .key("code")
      .value(status)
      .end_object()
      .end_object();
  now.set_body(body);
  now.set_details(std::string(reason.empty() ? std::string_view("stator_epp") : reason));
  return response;
}

StreamAnswer ExtProcStream::on_request(const wire::ProcessingRequest& request) {
  if (request.has_protocol_config() && !has_mode_) {
    has_mode_ = true;
    request_mode_ = request.protocol_config().request_body_mode();
    response_mode_ = request.protocol_config().response_body_mode();
    if (request_mode_ == Mode::STREAMED || request_mode_ == Mode::BUFFERED_PARTIAL) {
      StreamAnswer answer;
      answer.end = net::GrpcOutcome{
          kFailedPrecondition,
          fmt::format("processing_mode.request_body_mode is {}: set it to FULL_DUPLEX_STREAMED (or "
                      "BUFFERED), so that the endpoint can be chosen by the body",
                      mode_name(request_mode_))};
      return answer;
    }
  }
  switch (request.request_case()) {
    case wire::ProcessingRequest::kRequestHeaders:
      return on_request_headers(request);
    case wire::ProcessingRequest::kRequestBody:
      return on_request_body(request.request_body());
    case wire::ProcessingRequest::kRequestTrailers: {
      // The body ends with trailers when there are some.
      StreamAnswer answer = ended_ ? StreamAnswer() : choose();
      if (!refused_) {
        wire::ProcessingResponse response;
        response.mutable_request_trailers();
        answer.responses.push_back(std::move(response));
      }
      return answer;
    }
    case wire::ProcessingRequest::kResponseHeaders:
      return on_response_headers(request);
    case wire::ProcessingRequest::kResponseBody:
      return on_response_body(request.response_body());
    case wire::ProcessingRequest::kResponseTrailers: {
      facts_.usage = usage_.finish();  // the body ends with them
      wire::ProcessingResponse response;
      response.mutable_response_trailers();
      return answer_with(std::move(response));
    }
    default:
      return {};
  }
}

void ExtProcStream::read_subset(const wire::Metadata& metadata) {
  const google::protobuf::Value* hint = find_field(metadata, "envoy.lb.subset_hint", kSubset);
  if (hint == nullptr) {
    return;
  }
  std::vector<std::string> names;
  if (hint->kind_case() == google::protobuf::Value::kStringValue) {
    names = split(hint->string_value());
  } else if (hint->kind_case() == google::protobuf::Value::kListValue) {
    for (const auto& value : hint->list_value().values()) {
      for (std::string& part : split(value.string_value())) {
        names.push_back(std::move(part));
      }
    }
  }
  subset_ = std::move(names);
}

StreamAnswer ExtProcStream::on_request_headers(const wire::ProcessingRequest& request) {
  for (const wire::HeaderValue& header : request.request_headers().headers().headers()) {
    headers_[header.key()] = header.raw_value().empty() ? header.value() : header.raw_value();
  }
  if (const auto id = headers_.find("x-request-id"); id != headers_.end() && !id->second.empty()) {
    request_id_ = id->second;
  }
  if (request.has_metadata_context()) {
    read_subset(request.metadata_context());
  }
  if (request.request_headers().end_of_stream() || request_mode_ == Mode::NONE) {
    return choose();
  }
  if (request_mode_ == Mode::BUFFERED) {
    // The proxy waits for this before it sends the body; the choice comes with the body's answer.
    wire::ProcessingResponse response;
    response.mutable_request_headers()->mutable_response();
    return answer_with(std::move(response));
  }
  return {};
}

StreamAnswer ExtProcStream::on_request_body(const wire::HttpBody& body) {
  if (ended_) {
    return {};  // S1
  }
  facts_.request_bytes += body.body().size();
  if (body_.size() + body.body().size() > config_.body_bytes_max) {
    ended_ = true;
    return refuse(413, fmt::format("the body has more than {} bytes", config_.body_bytes_max));
  }
  has_body_ = true;
  body_ += body.body();
  return body.end_of_stream() || request_mode_ == Mode::BUFFERED ? choose() : StreamAnswer();
}

/// What a gateway or an InferenceModelRewrite wants the model to be: the body says so from here on.
void ExtProcStream::rewrite_model(RequestFacts& facts) {
  const auto wanted = headers_.find(kRewrite);
  const std::string target = wanted != headers_.end() && !wanted->second.empty()
                                 ? wanted->second
                                 : pool_.rewrite_of(facts.model, request_id_);
  if (facts.model_size == 0 || target == facts.model) {
    return;
  }
  std::string quoted;
  json::Writer(quoted).value(std::string_view(target));
  body_.replace(facts.model_at, facts.model_size, quoted);
  facts.model = target;
  rewritten_ = true;
  facts_.is_rewritten = true;
}

StreamAnswer ExtProcStream::refuse(int status, std::string_view message, std::string_view reason) {
  refused_ = true;
  facts_.refused_with = status;
  return answer_with(immediate(status, message, reason));
}

StreamAnswer ExtProcStream::choose() {
  ended_ = true;
  RequestFacts facts;
  if (!body_.empty()) {
    auto read = read_request(body_);
    if (!read) {
      return refuse(400, read.error().message());
    }
    facts = std::move(*read);
    facts_.model = facts.model;
    rewrite_model(facts);
    facts_.target_model = facts.model;
  }
  if (config_.is_full && config_.is_full()) {
    return refuse(503, "the endpoint picker has as many requests as it may: see --in-flight-max");
  }
  std::optional<PromptReader::Prompt> prompt;
  if (config_.prompts != nullptr && !body_.empty()) {
    const auto path = headers_.find(":path");
    auto counted = config_.prompts->read(
        path == headers_.end() ? std::string_view() : std::string_view(path->second), body_);
    if (!counted) {
      return refuse(400, counted.error().message());
    }
    prompt = std::move(*counted);
  }
  PickRequest wanted{
      .request_id = request_id_, .model = facts.model, .prompt = facts.prompt, .subset = subset_};
  if (prompt) {
    wanted.sequences = &prompt->sequences;
    wanted.tokens = prompt->tokens;
  }
  if (const auto objective = headers_.find(kObjective); objective != headers_.end()) {
    wanted.priority = pool_.priority_of(objective->second);
  }
  if (const auto forced = headers_.find(kForced); config_.test_mode && forced != headers_.end()) {
    wanted.forced = split(forced->second);
  }
  auto pick = pool_.pick(wanted);
  if (!pick) {
    const bool is_full = pick.error().code() == Code::kOverloaded;
    return refuse(is_full ? 429 : 503, pick.error().message(), is_full ? "rejected-saturated" : "");
  }
  pick_ = std::move(*pick);
  facts_.is_chosen = true;
  facts_.hit_ratio = pick_->hit_ratio;
  // Dynamo's workers need not count again what has been counted here.
  if (prompt && !prompt->ids.empty() && !pick_->instance.empty() && request_mode_ != Mode::NONE &&
      add_token_data(body_, prompt->ids)) {
    rewritten_ = true;
  }
  return tell_choice();
}

StreamAnswer ExtProcStream::tell_choice() {
  StreamAnswer answer;
  wire::ProcessingResponse response;
  if (request_mode_ == Mode::BUFFERED && !body_.empty()) {
    wire::CommonResponse& common = *response.mutable_request_body()->mutable_response();
    add_choice(common, response);
    if (rewritten_) {
      common.mutable_body_mutation()->set_body(body_);
    }
    answer.responses.push_back(std::move(response));
    return answer;
  }
  add_choice(*response.mutable_request_headers()->mutable_response(), response);
  answer.responses.push_back(std::move(response));
  if (request_mode_ == Mode::FULL_DUPLEX_STREAMED && has_body_) {
    add_streamed_body(answer);
  }
  return answer;
}

void ExtProcStream::add_choice(wire::CommonResponse& common,
                               wire::ProcessingResponse& response) const {
  common.set_clear_route_cache(true);
  wire::HeaderMutation& mutation = *common.mutable_header_mutation();
  set_header(mutation, kDestination, pick_->endpoint);
  if (!pick_->instance.empty()) {
    set_header(mutation, "x-dynamo-worker-instance-id", pick_->instance);
    set_header(mutation, "x-dynamo-routing-mode",
               pick_->prefill.empty() ? "aggregated" : "disaggregated");
    if (!pick_->rank.empty()) {
      set_header(mutation, "x-dynamo-dp-rank", pick_->rank);
    }
  }
  if (!pick_->prefill.empty()) {
    set_header(mutation, "x-prefiller-host-port", pick_->prefill);
    if (!pick_->prefill_instance.empty()) {
      set_header(mutation, "x-dynamo-prefill-instance-id", pick_->prefill_instance);
    }
    if (!pick_->prefill_rank.empty()) {
      set_header(mutation, "x-dynamo-prefill-dp-rank", pick_->prefill_rank);
    }
  }
  for (const std::string_view key : kControlHeaders) {
    mutation.add_remove_headers(std::string(key));
  }
  google::protobuf::Struct balancer;
  (*balancer.mutable_fields())[std::string(kDestination)].set_string_value(pick_->endpoint);
  *(*response.mutable_dynamic_metadata()->mutable_fields())["envoy.lb"].mutable_struct_value() =
      std::move(balancer);
}

void ExtProcStream::add_streamed_body(StreamAnswer& answer) const {
  size_t at = 0;
  do {
    const size_t size = std::min(kPieceMax, body_.size() - at);
    wire::ProcessingResponse response;
    wire::StreamedBodyResponse& piece = *response.mutable_request_body()
                                             ->mutable_response()
                                             ->mutable_body_mutation()
                                             ->mutable_streamed_response();
    piece.set_body(body_.substr(at, size));
    at += size;
    piece.set_end_of_stream(at == body_.size());
    answer.responses.push_back(std::move(response));
  } while (at < body_.size());
}

StreamAnswer ExtProcStream::on_response_headers(const wire::ProcessingRequest& request) {
  for (const wire::HeaderValue& header : request.response_headers().headers().headers()) {
    if (header.key() == "content-type") {
      usage_.set_content_type(header.raw_value().empty() ? header.value() : header.raw_value());
    }
  }
  wire::ProcessingResponse response;
  wire::CommonResponse& common = *response.mutable_response_headers()->mutable_response();
  const google::protobuf::Value* served =
      find_field(request.metadata_context(), "envoy.lb", kServed);
  if (served != nullptr) {
    served_ = served->string_value();
  }
  if (config_.test_mode) {  // what the conformance tests of gateways read
    const bool has_space = request.metadata_context().filter_metadata().contains("envoy.lb");
    set_header(*common.mutable_header_mutation(), kServedEcho,
               !served_.empty() ? std::string_view(served_)
               : has_space      ? "fail: missing destination endpoint served metadata"
                                : "fail: missing envoy lb metadata");
  }
  return answer_with(std::move(response));
}

StreamAnswer ExtProcStream::on_response_body(const wire::HttpBody& body) {
  facts_.response_bytes += body.body().size();
  facts_.is_begun = facts_.is_begun || !body.body().empty();
  usage_.add(body.body());
  if (body.end_of_stream()) {
    facts_.usage = usage_.finish();
  }
  if (pick_ && !body.body().empty()) {
    if (!prefilled_) {
      prefilled_ = true;
      pick_->lease.mark_prefill_completed();
      pick_->prefill_lease.release();
    }
    pick_->lease.add_output_tokens(1);
  }
  if (pick_ && body.end_of_stream()) {
    pick_->lease.release();
    pick_->count.release();
  }
  wire::ProcessingResponse response;
  wire::CommonResponse& common = *response.mutable_response_body()->mutable_response();
  if (response_mode_ != Mode::FULL_DUPLEX_STREAMED) {
    return answer_with(std::move(response));
  }
  StreamAnswer answer;
  size_t at = 0;
  do {
    const size_t size = std::min(kPieceMax, body.body().size() - at);
    wire::StreamedBodyResponse& piece =
        *common.mutable_body_mutation()->mutable_streamed_response();
    piece.set_body(body.body().substr(at, size));
    at += size;
    piece.set_end_of_stream(body.end_of_stream() && at == body.body().size());
    answer.responses.push_back(response);
  } while (at < body.body().size());
  return answer;
}

}  // namespace stator::epp
