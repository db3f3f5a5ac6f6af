// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"

namespace stator::weights {

/// "ORG/NAME" as the hub allows it; anything else is not a hub name.
bool is_hub_name(std::string_view name);

/// "ORG/NAME:Q4_K_M" is a file of that model, by the end of its name; without a suffix all of it.
struct HubModel {
  std::string name;
  std::string suffix;  ///< of a .gguf file, without the extension; empty: none was asked for
};
/// Nothing if it is neither of the two.
std::optional<HubModel> parse_hub_model(std::string_view text);

/// Which of a repository's files to serve, where it has .gguf files only or a suffix was asked for:
/// the one whose name ends with the suffix, whatever its case; without one Q4_K_M, else Q8_0, else
/// the first by name. Files of other kinds and projectors of images (mmproj) do not count.
/// kNotFound names those that are there; kUnsupported for a model in several parts.
Result<std::string> choose_gguf(std::vector<std::string> files, std::string_view suffix);

// What a hub answers becomes part of paths, so none of it is taken as it is.

/// A commit as git writes it: 7 to 64 lower-case hex digits.
bool is_commit(std::string_view text);
/// A branch, tag or commit: parts between slashes, none of which is empty or begins with a dot.
bool is_revision(std::string_view text);
/// What the content with this ETag is called in the cache: a checksum itself, of anything else
/// "etag-" and its SHA-256.
std::string blob_name(std::string_view etag);

/// One model in the Hugging Face cache layout:
///
///   <cache>/models--ORG--NAME/refs/main                 the commit "main" stood at
///   <cache>/models--ORG--NAME/blobs/<blob_name>         contents, named by checksum
///   <cache>/models--ORG--NAME/snapshots/<commit>/<file> links to blobs
class HubCache {
 public:
  HubCache(std::filesystem::path cache_dir, std::string_view name);

  /// A .gguf file of the snapshot `revision` stands at, as choose_gguf() says.
  std::optional<std::filesystem::path> find_gguf(const std::string& revision,
                                                 std::string_view suffix) const;
  /// The snapshot `revision` stands at, if all it needs to be served is there.
  std::optional<std::filesystem::path> find_snapshot(const std::string& revision) const;

  std::filesystem::path blob(const std::string& etag) const { return root_ / "blobs" / etag; }
  /// Where a blob grows while it is downloaded.
  std::filesystem::path partial(const std::string& etag) const {
    return root_ / "blobs" / (etag + ".incomplete");
  }
  /// Makes the folders; kIo names the one that cannot be made.
  Status prepare(const std::string& commit) const;
  /// snapshots/<commit>/<file> → blob.
  Status link(const std::string& commit, const std::string& file, const std::string& etag) const;
  Status write_ref(const std::string& revision, const std::string& commit) const;
  std::filesystem::path snapshot(const std::string& commit) const {
    return root_ / "snapshots" / commit;
  }

 private:
  std::optional<std::filesystem::path> folder_of(const std::string& revision) const;

  std::filesystem::path root_;
};

/// Whether `file` has the checksum its etag states: 64 hex digits are SHA-256 of the content, 40
/// are git's SHA-1 of "blob <size>\0<content>"; other etags say nothing and pass.
Result<bool> verify_blob(const std::filesystem::path& file, std::string_view etag);

/// Whether the hub's file of that name is needed to serve the model, and its name is a plain one.
bool is_wanted_file(std::string_view name);

}  // namespace stator::weights
