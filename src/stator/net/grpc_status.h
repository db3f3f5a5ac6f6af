// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace stator::net {

/// Numbers of gRPC's statuses (https://github.com/grpc/grpc/blob/master/doc/statuscodes.md).
inline constexpr int kGrpcOk = 0;
inline constexpr int kGrpcCancelled = 1;
inline constexpr int kGrpcUnknown = 2;
inline constexpr int kGrpcInvalidArgument = 3;
inline constexpr int kGrpcDeadlineExceeded = 4;
inline constexpr int kGrpcNotFound = 5;
inline constexpr int kGrpcPermissionDenied = 7;
inline constexpr int kGrpcResourceExhausted = 8;
inline constexpr int kGrpcFailedPrecondition = 9;
inline constexpr int kGrpcUnimplemented = 12;
inline constexpr int kGrpcInternal = 13;
inline constexpr int kGrpcUnavailable = 14;
inline constexpr int kGrpcUnauthenticated = 16;

}  // namespace stator::net
