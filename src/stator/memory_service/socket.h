// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"
#include "stator/memory_service/messages.h"

namespace stator::memory_service {

/// kInvalidArgument: no path, or one that is too long for a socket; kUnavailable: nobody listens.
Result<io::FileDescriptor> connect_socket(const std::string& path);

/// Of the first four bytes.
uint32_t read_length(std::string_view bytes);
/// With a descriptor to share, or −1. False: the other side is gone or takes nothing.
bool send_message(int socket, const Message& message, int descriptor = -1);
/// Waits for one message, and for the descriptor that comes with it, if one does. kDisconnected,
/// kCorrupt.
Result<Message> receive_message(int socket, io::FileDescriptor& descriptor);

}  // namespace stator::memory_service
