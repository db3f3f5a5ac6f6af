// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace stator::api {

/// The output items that the events of a response have told so far, as in ResponseState: for one
/// that was cancelled. Items that were not done have the status "incomplete" and the text that had
/// come. `events`: the data of ResponsesEncoder's events, in order; what is none of them is passed
/// over. Linear in the events' bytes.
std::string partial_output(std::span<const std::string> events);

}  // namespace stator::api
