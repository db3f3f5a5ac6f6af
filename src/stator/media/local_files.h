// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/core/result.h"
#include "stator/media/data_url.h"

namespace stator::media {

bool is_file_url(std::string_view source);

/// Reads "file:///folder/cat.png" if the file it is, after every link and "..", lies below
/// `folder`, a plain file of at most `bytes_max`. kInvalidArgument otherwise, in the same words
/// for files that are not there and files that may not be read. Blocking.
Result<RawMedia> read_local_file(std::string_view url, const std::string& folder,
                                 uint64_t bytes_max);

}  // namespace stator::media
