// SPDX-License-Identifier: Apache-2.0
#include "stator/media/local_files.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "stator/io/read_file.h"
#include "stator/text/percent.h"

namespace stator::media {
namespace {

constexpr std::string_view kScheme = "file://";

Error refuse() {
  return {Code::kInvalidArgument, "is a file that is not there, or not below media.local_folder"};
}

}  // namespace

bool is_file_url(std::string_view source) {
  return source.starts_with("file:");
}

Result<RawMedia> read_local_file(std::string_view url, const std::string& folder,
                                 uint64_t bytes_max) {
  if (folder.empty()) {
    return Error(Code::kInvalidArgument,
                 "is a file of this server, which reads none (media.local_folder)");
  }
  if (!url.starts_with(kScheme) || url.contains('\0')) {
    return refuse();
  }
  url.remove_prefix(kScheme.size());
  const std::string path = text::percent_decode(url);
  if (!path.starts_with('/') || path.contains('\0')) {
    return refuse();
  }
  std::error_code failed;
  const auto root = std::filesystem::canonical(folder, failed);
  if (failed) {
    return refuse();
  }
  const auto file = std::filesystem::canonical(path, failed);
  if (failed || !std::filesystem::is_regular_file(file, failed)) {
    return refuse();
  }
  const auto [end, rest] = std::mismatch(root.begin(), root.end(), file.begin(), file.end());
  if (end != root.end() || rest == file.end()) {
    return refuse();
  }
  auto bytes = io::read_file(file, bytes_max);
  if (!bytes) {
    return bytes.error().code() == Code::kTooLarge ? Result<RawMedia>(std::move(bytes.error()))
                                                   : Result<RawMedia>(refuse());
  }
  return RawMedia{.type = {}, .bytes = std::move(*bytes)};
}

}  // namespace stator::media
