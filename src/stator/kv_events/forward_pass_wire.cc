// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/forward_pass_wire.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "stator/kv_events/msgpack_reader.h"
#include "stator/kv_events/msgpack_writer.h"

namespace stator::kv_events {
namespace {
using engine::ForwardPass;
using engine::PassQueue;
using engine::PassWork;

constexpr uint64_t kVersion = 1;
constexpr std::string_view kTopic = "forward-pass-metrics";
constexpr uint64_t kU32Max = std::numeric_limits<uint32_t>::max();

std::string write_pass(const ForwardPassMessage& message) {
  const ForwardPass& pass = message.pass;
  MsgpackWriter out;
  out.map(7).text("version").integer(kVersion);
  out.text("worker_id").text(fmt::format("{}", message.worker.value()));
  out.text("dp_rank").integer(pass.dp_rank).text("counter_id").integer(pass.counter);
  out.text("wall_time").number(pass.wall_seconds);
  const PassWork& work = pass.scheduled;
  out.text("scheduled_requests").map(7);
  out.text("num_prefill_requests").integer(work.prefill_requests);
  out.text("sum_prefill_tokens").integer(work.prefill_tokens);
  out.text("var_prefill_length").number(work.prefill_length_var);
  out.text("sum_prefill_kv_tokens").integer(work.prefill_kv_tokens);
  out.text("num_decode_requests").integer(work.decode_requests);
  out.text("sum_decode_kv_tokens").integer(work.decode_kv_tokens);
  out.text("var_decode_kv_tokens").number(work.decode_kv_var);
  const PassQueue& queue = pass.queued;
  out.text("queued_requests").map(6);
  out.text("num_prefill_requests").integer(queue.prefill_requests);
  out.text("sum_prefill_tokens").integer(queue.prefill_tokens);
  out.text("var_prefill_length").number(queue.prefill_length_var);
  out.text("num_decode_requests").integer(queue.decode_requests);
  out.text("sum_decode_kv_tokens").integer(queue.decode_kv_tokens);
  out.text("var_decode_kv_tokens").number(queue.decode_kv_var);
  return out.take();
}

uint32_t read_u32(MsgpackReader& in) {
  return static_cast<uint32_t>(in.read_unsigned_max(kU32Max));
}

/// Seconds or a variance.
double read_amount(MsgpackReader& in) {
  const double amount = in.read_number();
  if (!std::isfinite(amount) || amount < 0) {
    in.fail("an amount below 0 or without end");
  }
  return amount;
}

/// Calls `take(name)` for each entry of a map; false from it skips the value.
template <typename Take>
void read_fields(MsgpackReader& in, Take take) {
  const uint32_t fields = in.read_map();
  for (uint32_t i = 0; i < fields && in.ok(); ++i) {
    std::string_view name;
    if (in.peek() == MsgpackReader::Kind::kText) {
      name = in.read_text();
    } else {
      in.skip();
    }
    if (!take(name)) {
      in.skip();
    }
  }
}

/// What scheduled and queued requests have in common.
template <typename Load>
bool read_load(MsgpackReader& in, std::string_view name, Load& load) {
  if (name == "num_prefill_requests") {
    load.prefill_requests = read_u32(in);
  } else if (name == "sum_prefill_tokens") {
    load.prefill_tokens = in.read_unsigned();
  } else if (name == "var_prefill_length") {
    load.prefill_length_var = read_amount(in);
  } else if (name == "num_decode_requests") {
    load.decode_requests = read_u32(in);
  } else if (name == "sum_decode_kv_tokens") {
    load.decode_kv_tokens = in.read_unsigned();
  } else if (name == "var_decode_kv_tokens") {
    load.decode_kv_var = read_amount(in);
  } else {
    return false;
  }
  return true;
}

template <typename Load>
void check_load(MsgpackReader& in, const Load& load) {
  if ((load.prefill_requests == 0 && load.prefill_tokens > 0) ||
      (load.decode_requests == 0 && load.decode_kv_tokens > 0)) {
    in.fail("tokens of no request");
  }
}

WorkerId read_worker(MsgpackReader& in) {
  const std::string_view text = in.read_text();
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) {
    in.fail("a worker_id that is no number");
  }
  return WorkerId(id);
}

/// Nothing for another version: its fields may mean anything.
std::optional<ForwardPass> read_pass(MsgpackReader& in, WorkerId publisher) {
  ForwardPass pass;
  uint64_t version = 0;
  std::optional<WorkerId> worker;
  read_fields(in, [&](std::string_view name) {
    if (name == "version") {
      version = in.read_unsigned();
    } else if (version != kVersion && version != 0) {
      return false;
    } else if (name == "worker_id") {
      worker = read_worker(in);
    } else if (name == "dp_rank") {
      pass.dp_rank = read_u32(in);
    } else if (name == "counter_id") {
      pass.counter = in.read_unsigned();
    } else if (name == "wall_time") {
      pass.wall_seconds = read_amount(in);
    } else if (name == "scheduled_requests") {
      read_fields(in, [&](std::string_view field) {
        if (field == "sum_prefill_kv_tokens") {
          pass.scheduled.prefill_kv_tokens = in.read_unsigned();
          return true;
        }
        return read_load(in, field, pass.scheduled);
      });
    } else if (name == "queued_requests") {
      read_fields(in, [&](std::string_view field) { return read_load(in, field, pass.queued); });
    } else {
      return false;
    }
    return true;
  });
  if (in.ok() && version != kVersion) {
    return std::nullopt;
  }
  if (worker != publisher) {
    in.fail("a forward pass of another worker than the publisher");
  }
  check_load(in, pass.scheduled);
  check_load(in, pass.queued);
  return pass;
}

}  // namespace

std::string encode(const ForwardPassMessage& message) {
  MsgpackWriter out;
  out.map(6).text("publisher_id").integer(message.worker.value());
  out.text("inc").integer(message.incarnation.value());
  out.text("sequence").integer(message.sequence);
  out.text("published_at").negative(message.published_at_ms);
  out.text("topic").text(kTopic);
  out.text("payload").bytes(write_pass(message));
  return out.take();
}

Result<ForwardPassMessage> decode_forward_pass(std::string_view bytes) {
  ForwardPassMessage message;
  std::string_view payload;
  MsgpackReader in(bytes);
  read_fields(in, [&](std::string_view name) {
    if (name == "publisher_id") {
      message.worker = WorkerId(in.read_unsigned());
    } else if (name == "inc") {
      message.incarnation = Incarnation(in.read_unsigned());
    } else if (name == "sequence") {
      message.sequence = in.read_unsigned();
    } else if (name == "published_at") {
      message.published_at_ms = static_cast<int64_t>(in.read_integer_bits());
    } else if (name == "payload") {
      payload = in.read_bytes();
    } else {
      return false;
    }
    return true;
  });
  STATOR_CHECK(in.status(), "forward pass's envelope");
  MsgpackReader inner(payload);
  const auto pass = read_pass(inner, message.worker);
  STATOR_CHECK(inner.status(), "forward pass");
  if (!pass) {
    return Error(Code::kUnsupported, "forward pass: not of version 1");
  }
  message.pass = *pass;
  return message;
}

}  // namespace stator::kv_events
