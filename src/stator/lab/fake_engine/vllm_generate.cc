// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/core/hash.h"
#include "stator/lab/fake_engine/json_read.h"
#include "stator/lab/fake_engine/vllm_answer.h"
#include "stator/lab/fake_engine/vllm_service.h"

namespace stator::fake_engine {
namespace {

using namespace std::chrono_literals;

constexpr Duration kParkedPoll = 20ms;

std::string prefix_of(VllmRoute route) {
  switch (route) {
    case VllmRoute::kCompletions:
      return "cmpl-";
    case VllmRoute::kChat:
      return "chatcmpl-";
    case VllmRoute::kGenerate:
      break;
  }
  return "generate-tokens-";
}

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

uint16_t read_port(const json::Value& params) {
  // Over protobuf Structs numbers arrive as text or floats; both are taken.
  if (const auto text = read_text(params, "remote_port")) {
    return static_cast<uint16_t>(std::atoi(text->c_str()));
  }
  return static_cast<uint16_t>(read_integer(params, "remote_port").value_or(0));
}

class VllmAnswer final : public Answer {
 public:
  VllmAnswer(ServerContext& context, VllmState& state, net::HttpExchange& exchange, Fault fault,
             VllmRequest request)
      : Answer(context, exchange, std::move(fault)),
        state_(state),
        request_(std::move(request)),
        encoder_(context.model, request_, said_),
        started_at_(context.shard.now()) {
    std::string id(exchange.request().header("x-request-id").value_or(""));
    if (!request_.request_id.empty()) {
      id = request_.request_id;
    }
    if (id.empty()) {
      id = random_hex(context.random, 8);
    }
    said_.id = prefix_of(request_.route) + id;
    said_.created = unix_seconds(context.shard.clock().wall_now());
    said_.model = request_.model.empty() ? state.names.front() : request_.model;
    said_.fingerprint = state.fingerprint;
    said_.block_size = context.config.engine.block_size;
    said_.choices.resize(request_.spec.prompts.size() * request_.spec.n);
    engine_request_id_ = said_.id + (request_.route == VllmRoute::kGenerate ? "-" : "-0-") +
                         random_hex(context.random, 4);
    if (!request_.spec.dp_rank) {
      request_.spec.dp_rank = 0;
      uint32_t least = UINT32_MAX;
      for (uint32_t rank = 0; rank < context.host.ranks(); ++rank) {
        const auto load = context.host.load(rank);
        if (load.running + load.waiting < least) {
          least = load.running + load.waiting;
          request_.spec.dp_rank = rank;
        }
      }
    }
  }
  ~VllmAnswer() override { *alive_ = false; }

  bool is_named(std::string_view id) const override {
    return id == said_.id || id == engine_request_id_ ||
           id == std::string_view(said_.id).substr(prefix_of(request_.route).size());
  }

  void begin() override {
    if (state_.parked()) {
      parked_ = context_.shard.after(kParkedPoll, [this] { begin(); });
      return;
    }
    if (request_.kv_transfer && read_flag(*request_.kv_transfer, "do_remote_prefill")) {
      claim();
      return;
    }
    start();
  }

 private:
  VllmCounters& counters() { return state_.counters[*request_.spec.dp_rank]; }
  bool wants_handoff() const {
    return request_.kv_transfer && read_flag(*request_.kv_transfer, "do_remote_decode");
  }

  void start() {
    size_t tokens = 0;
    for (const auto& prompt : request_.spec.prompts) {
      tokens += prompt.size();
      counters().prompt_lengths.observe(static_cast<double>(prompt.size()));
    }
    counters().prompt_tokens += tokens;
    submit(request_.spec);
  }

  /// Asks the prefill server whether the blocks are still there; then starts, with other tokens if
  /// they are not: that is what reading overwritten blocks amounts to.
  void claim() {
    const auto& params = *request_.kv_transfer;
    RemoteHandoff handoff{.host = read_text(params, "remote_host").value_or(""),
                          .port = read_port(params),
                          .engine_id = read_text(params, "remote_engine_id").value_or(""),
                          .request_id = read_text(params, "remote_request_id").value_or("")};
    if (state_.channel == nullptr) {
      fail_internally();
      return;
    }
    state_.channel->claim(std::move(handoff),
                          [&shard = context_.shard, alive = alive_, this](ClaimAnswer answer) {
                            const bool posted = shard.post([alive, answer, this] {
                              if (*alive && !gone()) {
                                on_claimed(answer);
                              }
                            });
                            static_cast<void>(posted);
                          });
  }

  void on_claimed(ClaimAnswer answer) {
    if (!answer.reachable || answer.outcome == ClaimOutcome::kRefused) {
      fail_internally();
      return;
    }
    const auto& params = *request_.kv_transfer;
    const size_t tokens = request_.spec.prompts.front().size();
    counters().external_queries += tokens;
    counters().external_hits += tokens;
    remote_cached_ =
        static_cast<uint32_t>(read_integer(params, "remote_prefill_cached_tokens").value_or(0));
    if (answer.outcome == ClaimOutcome::kStale) {
      request_.spec.altered ^=
          xxh3_64(std::string_view(read_text(params, "remote_request_id").value_or("?"))) | 1U;
    }
    start();
  }

  void fail_internally() {
    ++counters().failed;
    on_failure(Error(Code::kInternal, "Internal server error"));
  }

  void write(ChoiceDelta delta) override {
    count(delta);
    CollectedChoice& choice = said_.choices[delta.index];
    if (delta.index == 0 && choice.tokens.empty()) {
      const bool recomputed = request_.prompt_logprobs || request_.echo;
      said_.cached_tokens =
          recomputed ? 0 : (remote_cached_ ? *remote_cached_ : delta.cached_tokens);
    }
    said_.generated += static_cast<uint32_t>(delta.tokens.size());
    choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
    choice.finish = delta.finish;
    if (request_.stream) {
      std::string out;
      encoder_.append_chunk(delta, out);
      send(out);
      return;
    }
    choice.text += delta.text;
    std::ranges::move(delta.logprobs, std::back_inserter(choice.logprobs));
    choice.stop_reason = std::move(delta.stop_reason);
  }

  void finish() override {
    const Duration total = context_.shard.now() - started_at_;
    counters().end_to_end.observe(seconds(total));
    for (const CollectedChoice& choice : said_.choices) {
      counters().generation_lengths.observe(static_cast<double>(choice.tokens.size()));
      choice.finish == inference::FinishReason::kLength ? ++counters().length
                                                        : ++counters().stopped;
    }
    if (wants_handoff()) {
      offer_handoff();
    }
    if (request_.stream) {
      std::string out;
      encoder_.append_end(out);
      send(out);
      end_stream();
    } else {
      respond(200, encoder_.body());
    }
  }

  void refuse(const Error& error, bool started) override {
    if (error.code() == Code::kCancelled) {
      finish_aborted();
      return;
    }
    const bool overloaded = error.code() == Code::kOverloaded;
    const bool bad = error.code() == Code::kInvalidArgument;
    const VllmError shown{.status = overloaded ? 503 : (bad ? 400 : 500),
                          .message = error.message(),
                          .type = overloaded ? "ServiceUnavailableError"
                                             : (bad ? "BadRequestError" : "InternalServerError"),
                          .param = {}};
    const std::string body = vllm_error_body(shown, context_.config.release);
    if (started) {
      send("data: " + body + "\n\ndata: [DONE]\n\n");
      end_stream();
    } else {
      respond(shown.status, body);
    }
  }

  /// An abort route ended the request: whatever was said, with finish_reason "abort".
  void finish_aborted() {
    ++counters().aborted;
    if (request_.stream) {
      std::string out;
      for (uint32_t i = 0; i < said_.choices.size(); ++i) {
        if (said_.choices[i].finish == inference::FinishReason::kNone) {
          ChoiceDelta last;
          last.index = i;
          last.finish = inference::FinishReason::kCancelled;
          encoder_.append_chunk(last, out);
        }
      }
      encoder_.append_end(out);
      send(out);
      end_stream();
      return;
    }
    for (CollectedChoice& choice : said_.choices) {
      if (choice.finish == inference::FinishReason::kNone) {
        choice.finish = inference::FinishReason::kCancelled;
      }
    }
    respond(200, encoder_.body());
  }

  void count(const ChoiceDelta& delta) {
    const TimePoint now = context_.shard.now();
    counters().generation_tokens += delta.tokens.size();
    if (said_.choices[delta.index].tokens.empty()) {
      counters().cached_tokens += delta.cached_tokens;
      counters().time_to_first_token.observe(seconds(now - started_at_));
    } else {
      counters().inter_token.observe(seconds(now - last_token_at_));
    }
    last_token_at_ = now;
  }

  void offer_handoff() {
    const auto tokens = static_cast<uint32_t>(request_.spec.prompts.front().size());
    const uint32_t blocks = (tokens + said_.block_size - 1) / said_.block_size;
    HandoffOffer offer;
    {
      const MutexLock lock(state_.desk_mutex);
      offer = state_.open_handoffs->offer(engine_request_id_, blocks, context_.shard.now());
    }
    std::string out;
    json::Writer json(out);
    json.begin_object().key("do_remote_prefill").value(true).key("do_remote_decode").value(false);
    json.key("remote_block_ids").begin_array();
    const bool grouped = context_.config.release == Release::kCurrent;
    if (grouped) {
      json.begin_array();
    }
    for (const uint32_t id : offer.block_ids) {
      json.value(id);
    }
    if (grouped) {
      json.end_array();
    }
    json.end_array().key("remote_engine_id").value(state_.engine_id);
    json.key("remote_request_id").value(engine_request_id_);
    json.key("remote_host").value(context_.config.handoff.host);
    json.key("remote_port").value(state_.channel == nullptr ? 0 : state_.channel->port());
    json.key("tp_size").value(1);
    if (grouped) {
      json.key("dcp_size").value(1).key("pp_size").value(1);
      json.key("remote_num_tokens").value(tokens).key("remote_blocks_expiry_time").null();
      json.key("transfer_mode").value("pull");
      json.key("remote_prefill_cached_tokens").value(said_.cached_tokens);
    }
    json.end_object();
    said_.kv_transfer_json = std::move(out);
  }

  VllmState& state_;
  VllmRequest request_;
  VllmAnswerState said_;
  VllmEncoder encoder_;
  std::string engine_request_id_;
  TimePoint started_at_;
  TimePoint last_token_at_{};
  std::optional<uint32_t> remote_cached_;
  net::Timer parked_;
  /// Shared with a claim that is on its way: it may return after the client has left.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace

std::unique_ptr<Answer> make_vllm_answer(ServerContext& context, VllmState& state,
                                         net::HttpExchange& exchange, Fault fault,
                                         VllmRequest request) {
  return std::make_unique<VllmAnswer>(context, state, exchange, std::move(fault),
                                      std::move(request));
}

}  // namespace stator::fake_engine
