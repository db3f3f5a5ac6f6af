// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/api/field_reader.h"
#include "stator/api/media_parts.h"
#include "stator/api/request.h"

namespace stator::protocols::anthropic {

/// Reads `messages` and `system` and writes them as OpenAI's messages. Strings are copied as they
/// are spelled, nothing is decoded.
///
/// Messages of the same role that follow each other are one turn, as with Anthropic. A tool_result
/// becomes a message of role `tool`, after the user's text before it; thinking becomes
/// reasoning_content; an answer that the client has begun (a last message of the assistant's) is
/// continued.
class Conversation {
 public:
  explicit Conversation(api::FieldReader& in) : in_(in) {}

  /// The value of `system`. `strip_preamble`: without a first line that is a billing header.
  void read_system(const api::Path& path, bool strip_preamble);
  /// The value of `messages`.
  void read_messages(const api::Path& path);
  /// After both.
  void write_to(api::ChatInput& chat, uint32_t depth_max);

  bool has_messages() const { return messages_seen_; }
  /// Seconds that a cache_control asks for; 0: there is none.
  uint32_t keep_s() const { return keep_s_; }
  bool has_citations() const { return citations_seen_; }

 private:
  enum class BlockType : uint8_t {
    kNone,  ///< not given
    kText,
    kThinking,
    kRedactedThinking,
    kToolUse,
    kToolResult,
    kDocument,
    kImage,
    kUnknown,
  };
  /// String literals with their quotes, as the body spells them.
  using Literals = std::vector<std::string_view>;
  /// An image among texts, as a part of OpenAI's, and how many texts stand before it.
  struct Image {
    size_t texts_before = 0;
    std::string part;
    std::string path;
  };
  /// Where the bytes of a document or image are; `data` and `url` are literals.
  struct Source {
    std::string type;
    std::optional<std::string_view> data;
    std::optional<std::string> media_type;
    std::optional<std::string_view> url;
  };
  /// What a block contains, gathered before its type may be known.
  struct Block {
    BlockType type = BlockType::kNone;
    std::string type_name;
    std::optional<std::string_view> text;
    std::optional<std::string_view> thinking;
    std::optional<std::string_view> id;
    std::optional<std::string_view> name;
    std::optional<std::string_view> input;
    std::optional<std::string_view> tool_use_id;
    std::optional<Source> source;
    Literals content;
    std::vector<Image> images;           ///< of content
    std::optional<size_t> refused_part;  ///< of content
    std::string refused_type;
    bool is_error = false;
  };
  struct Call {
    std::string_view id;
    std::string_view name;
    std::string_view input;
  };
  /// The turn that is being read.
  struct Turn {
    api::Role role = api::Role::kUser;
    Literals texts;
    std::vector<Image> images;
    Literals thoughts;
    std::vector<Call> calls;
    bool empty() const {
      return texts.empty() && images.empty() && thoughts.empty() && calls.empty();
    }
  };

  void read_message(const api::Path& path);
  void read_content(api::Role role, const api::Path& path);
  void read_block_member(std::string_view key, const api::Path& path, Block& block);
  Block read_block(const api::Path& path);
  void read_block_type(const api::Path& path, Block& block);
  void read_result_content(const api::Path& path, Block& block);
  void read_source(const api::Path& path, Block& block);
  void take(api::Role role, const Block& block, const api::Path& path);
  void take_result(const Block& block, const api::Path& path);
  bool require(const std::optional<std::string_view>& member, const api::Path& path,
               std::string_view name);
  void begin_turn(api::Role role);
  void flush();
  void open_message(std::string_view role);
  void write_assistant();
  /// The part of OpenAI's that the block is; nothing after a violation.
  std::optional<std::string> image_part(const Block& block, const api::Path& path);
  /// The text of a document; nothing where it is none.
  static std::optional<std::string_view> document_text(const Block& block);
  void write_content(const Literals& literals, const std::vector<Image>& images,
                     std::string_view prefix = {});

  api::FieldReader& in_;
  std::string system_;  // a literal; empty: none
  std::string out_;     // the messages, without brackets and system
  Turn turn_;
  uint32_t written_ = 0;
  bool messages_seen_ = false;
  uint32_t keep_s_ = 0;
  bool citations_seen_ = false;
  api::Role last_role_ = api::Role::kUser;
  std::vector<std::string> image_paths_;  // of all written, in order
  bool continues_ = false;                // the last message is an answer to be continued
};

}  // namespace stator::protocols::anthropic
