// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/clock.h"

namespace stator::storage {

struct AwsCredentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  ///< empty: none
  std::string region = "us-east-1";
};

/// What is signed of a request.
struct AwsRequest {
  std::string_view method;
  std::string_view host;   ///< as in the Host header
  std::string_view path;   ///< percent-encoded once, from '/'
  std::string_view query;  ///< percent-encoded, keys sorted; may be empty
  /// x-amz-* and other headers to be signed, names in lower case; without host and x-amz-date.
  std::vector<std::pair<std::string, std::string>> headers;
  std::string_view payload_hash;  ///< hex SHA-256, or UNSIGNED-PAYLOAD
};

/// The request's headers with those that sign it: x-amz-date, x-amz-content-sha256, perhaps
/// x-amz-security-token, and Authorization, by AWS Signature Version 4 for service "s3".
std::vector<std::pair<std::string, std::string>> sign(const AwsRequest& request,
                                                      const AwsCredentials& credentials,
                                                      WallTime now);

/// Hex SHA-256.
std::string sha256_hex(std::string_view bytes);
/// Percent-encodes all but unreserved characters and, in paths, '/'.
std::string encode_path(std::string_view path);

}  // namespace stator::storage
