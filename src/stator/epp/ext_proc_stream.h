// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/epp/pool.h"
#include "stator/epp/usage_reader.h"
#include "stator/net/grpc_call.h"
#include "stator/proto/envoy/v3/ext_proc.pb.h"

namespace stator::epp {

namespace wire = ::envoy::service::ext_proc::v3;

/// Counts a prompt as its model does. Null pointers where somebody has none: then text is compared.
class PromptReader {
 public:
  struct Prompt {
    std::vector<blocks::SequenceHash> sequences;
    uint32_t tokens = 0;
    std::vector<TokenId> ids = {};  ///< empty: the request brought them itself
  };
  virtual ~PromptReader() = default;
  /// Of a chat or completion request; nothing for other paths. kInvalidArgument: the request is
  /// one that the model's template or tokenizer refuses (400). Thread-safe.
  virtual Result<std::optional<Prompt>> read(std::string_view path, std::string_view body) = 0;
};

struct StreamConfig {
  size_t body_bytes_max = size_t{20} << 20;         ///< beyond: 413
  std::shared_ptr<PromptReader> prompts = nullptr;  ///< shared by all streams
  bool test_mode = false;  ///< obeys test-epp-endpoint-selection and echoes who served
  /// Whether there is no room for another request (503). May be empty.
  std::function<bool()> is_full = {};
};

/// What is known of a stream's request so far.
struct StreamFacts {
  std::string model;         ///< as the client named it; empty: it did not
  std::string target_model;  ///< as its server gets it
  size_t request_bytes = 0;
  size_t response_bytes = 0;
  TokenUsage usage;        ///< once the answer has ended
  int refused_with = 0;    ///< HTTP status that we answered with; 0: we did not
  bool is_chosen = false;  ///< an endpoint was chosen
  bool is_begun = false;   ///< the answer's body has begun
  bool is_rewritten = false;
  double hit_ratio = -1;  ///< of the choice; -1: there was none
};

/// What goes back to the proxy for one message of it.
struct StreamAnswer {
  std::vector<wire::ProcessingResponse> responses;
  std::optional<net::GrpcOutcome> end;  ///< the stream is over, with this status
};

/// One HTTP request as the proxy tells it: headers, body, then the response. Chooses an endpoint
/// once, at the request's end, and holds its load until this is gone.
///
///   headers ──▶ body ──(end_of_stream)──▶ chosen ──▶ response
///
/// Bodies may come whole (BUFFERED), in pieces of any size (FULL_DUPLEX_STREAMED), or not at all
/// (NONE). With other modes a proxy could not be told the choice after the body: the stream fails
/// with FAILED_PRECONDITION and says which mode to set.
///
/// S1  The choice is made at most once; what comes of the request after its end is ignored (proxies
///     have been seen to repeat the last piece). S2  A header's response precedes the body's.
class ExtProcStream {
 public:
  ExtProcStream(EndpointPool& pool, StreamConfig config, std::string request_id)
      : pool_(pool), config_(config), request_id_(std::move(request_id)) {}

  StreamAnswer on_request(const wire::ProcessingRequest& request);
  const StreamFacts& facts() const { return facts_; }

 private:
  using Mode = wire::ProtocolConfiguration;

  StreamAnswer on_request_headers(const wire::ProcessingRequest& request);
  StreamAnswer on_request_body(const wire::HttpBody& body);
  StreamAnswer on_response_headers(const wire::ProcessingRequest& request);
  StreamAnswer on_response_body(const wire::HttpBody& body);
  StreamAnswer choose();
  StreamAnswer refuse(int status, std::string_view message, std::string_view reason = {});
  StreamAnswer tell_choice();
  void rewrite_model(RequestFacts& facts);
  void read_subset(const wire::Metadata& metadata);
  void add_choice(wire::CommonResponse& common, wire::ProcessingResponse& response) const;
  void add_streamed_body(StreamAnswer& answer) const;

  EndpointPool& pool_;
  StreamConfig config_;
  std::string request_id_;
  std::map<std::string, std::string, std::less<>> headers_;
  std::optional<std::vector<std::string>> subset_;
  std::string body_;
  Mode::BodySendMode request_mode_ = Mode::FULL_DUPLEX_STREAMED;
  Mode::BodySendMode response_mode_ = Mode::FULL_DUPLEX_STREAMED;
  bool has_mode_ = false;
  bool has_body_ = false;
  bool ended_ = false;  ///< the request's end has been seen
  bool refused_ = false;
  bool prefilled_ = false;
  bool rewritten_ = false;  ///< the body is not as the client sent it
  std::string served_;      ///< who served, as the proxy says
  StreamFacts facts_;
  UsageReader usage_;
  std::optional<Pick> pick_;
};

/// An answer in the proxy's place.
wire::ProcessingResponse immediate(int status, std::string_view message,
                                   std::string_view reason = {});

}  // namespace stator::epp
