// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "stator/core/clock.h"
#include "stator/io/file_descriptor.h"
#include "stator/transfer/wire.h"

namespace stator::transfer {

/// All of it, or false when the peer is gone or takes nothing for the socket's time limit.
bool send_all(int fd, std::span<const std::byte> head, std::span<const std::byte> payload);
bool receive_all(int fd, std::span<std::byte> out);
/// A head that decodes; false: the connection is of no use any more. `malformed`, if given, becomes
/// true when what came is no head.
bool receive_frame(int fd, Frame& frame, bool* malformed = nullptr);

/// A TCP socket with no delay, large buffers, and `limit` as the longest silence.
void set_up_socket(int fd, Duration limit);
void limit_silence(int fd, Duration limit);
/// Listens on any free port of `host`; the descriptor is closed on failure.
io::FileDescriptor listen_tcp(const std::string& host, uint16_t& port);
io::FileDescriptor connect_tcp(const std::string& host, uint16_t port, Duration limit);

}  // namespace stator::transfer
