// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"

namespace stator::io {

/// Unix sockets with a path, and what only they can do: pass open descriptors (unix(7)).
/// `type`: SOCK_STREAM or SOCK_SEQPACKET, with SOCK_NONBLOCK if wanted. All are closed on exec.

/// Listens at `path` for this user's processes only; takes the place of a file that is there.
/// kInvalidArgument: no path, or one that is too long. kIo.
Result<FileDescriptor> listen_unix(const std::string& path, int type, int backlog);
/// kInvalidArgument as above; kUnavailable: nothing listens there.
Result<FileDescriptor> connect_unix(const std::string& path, int type);

/// The kernel takes 253 in one message.
inline constexpr size_t kPassedMax = 250;

/// One sendmsg() of `bytes`, with the first kPassedMax of `passed` beside them; never raises
/// SIGPIPE. What it returns: the number of bytes, or −1 and errno.
ssize_t send_passing(int socket, std::span<const char> bytes, std::span<const int> passed,
                     int flags = 0);
/// One recvmsg() into `bytes`; descriptors that come with them are appended to `passed`.
ssize_t receive_passed(int socket, std::span<char> bytes, std::vector<FileDescriptor>& passed);

}  // namespace stator::io
