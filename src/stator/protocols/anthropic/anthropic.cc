// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/anthropic/anthropic.h"

#include "stator/json/writer.h"
#include "stator/protocols/anthropic/error_shape.h"
#include "stator/protocols/anthropic/reader.h"
#include "stator/protocols/anthropic/writer.h"

namespace stator::protocols::anthropic {
namespace {

void append_count(std::string& out, uint64_t tokens) {
  json::Writer(out).begin_object().key("input_tokens").value(tokens).end_object();
}

// "Overloaded" in Anthropic's list of errors; its SDKs have an exception of their own for it.
constexpr int kOverloaded = 529;

}  // namespace

constexpr Protocol kProtocol = {.endpoint = "anthropic_messages",
                                .id_prefix = "msg_",
                                .request_id_header = "request-id",
                                .overload_status = kOverloaded,
                                .read = read_messages,
                                .make_stream_writer = make_stream_writer,
                                .append_body = append_message,
                                .append_error = append_error,
                                .append_count = append_count};

}  // namespace stator::protocols::anthropic
