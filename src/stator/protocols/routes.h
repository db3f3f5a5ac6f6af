// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "stator/api/error_body.h"
#include "stator/protocols/protocol.h"

namespace stator::protocols {

/// What is done with the body of a POST.
enum class Operation : uint8_t {
  kGenerate,  ///< read, run, answered by the protocol's writer
  kCount,     ///< read, rendered, tokenized, and counted
};

struct Route {
  std::string_view path;  ///< exact, without a query
  const Protocol* protocol;
  Operation operation;
};

/// All routes that protocols of this module answer; the frontend walks it.
std::span<const Route> routes();

/// The route of a POST to `path`; null if there is none.
const Route* find_route(std::string_view path);

/// Whose error shape answers at `path` have: of the protocol with a route that is `path`, or that
/// `path` lies under ("/v1/messages/x", not "/v1/messages_beta"). Null: OpenAI's.
const Protocol* find_protocol(std::string_view path);

/// `style` in the shape of `protocol`, which may be null.
api::ErrorStyle style_for(const Protocol* protocol, api::ErrorStyle style);

/// The id of an answer to the request with that id (a UUID): "msg_<32 hexadecimal digits>".
std::string answer_id(const Protocol& protocol, std::string_view request_id);
/// The other way round; empty if `answer_id` is of no protocol of this module.
std::string request_id_of(std::string_view answer_id);

}  // namespace stator::protocols
