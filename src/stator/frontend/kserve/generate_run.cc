// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/kserve/generate_run.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "stator/net/grpc_exchange.h"

namespace stator::frontend {
namespace {

using protocols::kserve::GenerateAnswer;

// The body names the model.
constexpr std::string_view kGenerate = "/v2/models/_/generate";
constexpr std::string_view kGenerateStream = "/v2/models/_/generate_stream";

net::HttpRequest make_request(const net::HttpRequest& client,
                              protocols::kserve::GenerateCall& call) {
  net::HttpRequest made("POST", call.stream ? kGenerateStream : kGenerate);
  made.add_header("content-type", "application/json");
  for (size_t i = 0; i < client.header_count(); ++i) {
    const net::HttpHeader header = client.header_at(i);
    if (header.name.starts_with("x-") || header.name.starts_with("X-") ||
        header.name.starts_with("trace")) {
      made.add_header(header.name, header.value);
    }
  }
  if (const auto timeout = net::grpc_timeout(client)) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(*timeout).count();
    made.add_header("x-stator-request-timeout-ms", fmt::to_string(std::max<int64_t>(ms, 1)));
  }
  made.set_notes(client.notes());
  made.mutable_body() = std::move(call.body);
  return made;
}

}  // namespace

GenerateRun::GenerateRun(net::Shard& shard, const net::HttpRequest& client,
                         protocols::kserve::InferRequest request,
                         protocols::kserve::GenerateCall call, Owner& owner)
    : request_(std::move(request)),
      stream_(call.stream),
      wants_final_(call.wants_final),
      owner_(&owner),
      exchange_(shard, make_request(client, call), *this) {}

GenerateRun::~GenerateRun() {
  cancel();
}

void GenerateRun::cancel() {
  owner_ = nullptr;
  exchange_.cancel();
}

void GenerateRun::on_answer(int status, std::span<const net::HttpHeader> /*headers*/) {
  status_ = status;
}

void GenerateRun::on_bytes(std::string_view bytes) {
  received_ += bytes;
  if (stream_ && status_ == 200) {
    take_events();
  }
}

void GenerateRun::take_events() {
  constexpr std::string_view kData = "data: ";
  constexpr std::string_view kEnd = "\n\n";
  size_t at = 0;
  for (size_t end = received_.find(kEnd); end != std::string::npos && owner_ != nullptr;
       end = received_.find(kEnd, at)) {
    const std::string_view event = std::string_view(received_).substr(at, end - at);
    at = end + kEnd.size();
    if (!event.starts_with(kData)) {
      continue;
    }
    auto answer = protocols::kserve::read_answer(event.substr(kData.size()));
    if (!answer) {
      failure_ = {.status = 500, .message = answer.error().message()};
    } else if (!answer->error.empty()) {
      failure_ = {.status = 500, .message = std::move(answer->error)};
    } else {
      owner_->on_answer(*this, *answer);
    }
  }
  received_.erase(0, at);
}

void GenerateRun::on_end(End end) {
  if (owner_ == nullptr) {
    return;
  }
  if (end == End::kBroken) {
    failure_ = {.status = 503, .message = "the answer broke off"};
  } else if (status_ != 200 || !stream_) {
    auto answer = protocols::kserve::read_answer(received_);
    if (!answer) {
      failure_ = {.status = 500, .message = answer.error().message()};
    } else if (status_ != 200) {
      failure_ = {.status = status_, .message = std::move(answer->error)};
    } else {
      owner_->on_answer(*this, *answer);
    }
  }
  if (owner_ != nullptr) {
    owner_->on_ended(*this, std::move(failure_));
  }
}

}  // namespace stator::frontend
