// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/parquet_file.h"

#include <fmt/format.h>
#include <snappy-c.h>
#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "stator/io/read_file.h"
#include "stator/perf/detail/thrift_reader.h"

namespace stator::perf {
namespace {

static_assert(std::endian::native == std::endian::little, "Parquet's numbers are little-endian");

using Type = ThriftReader::Type;

// Numbers of parquet.thrift.
enum class Physical : int64_t {
  kBoolean = 0,
  kInt32 = 1,
  kInt64 = 2,
  kFloat = 4,
  kDouble = 5,
  kBytes = 6
};
enum class Codec : int64_t { kNone = 0, kSnappy = 1, kZstd = 6 };
enum class Encoding : int64_t { kPlain = 0, kPlainDictionary = 2, kRleDictionary = 8 };
enum class PageKind : int64_t { kData = 0, kIndex = 1, kDictionary = 2 };

constexpr std::string_view kMagic = "PAR1";
constexpr int64_t kPageBytesMax = 256LL << 20;

struct ColumnSpec {
  std::string name;
  Physical type = Physical::kInt64;
  bool optional = false;
};

struct Chunk {
  Physical type = Physical::kInt64;
  Codec codec = Codec::kNone;
  int64_t values = 0;
  int64_t data_offset = 0;
  int64_t dictionary_offset = 0;
  int64_t bytes = 0;
};

struct Metadata {
  std::vector<ColumnSpec> columns;
  std::vector<std::vector<Chunk>> row_groups;
  int64_t rows = 0;
  bool nested = false;
};

struct PageHeader {
  PageKind kind = PageKind::kData;
  Encoding encoding = Encoding::kPlain;
  int64_t plain_bytes = 0;
  int64_t stored_bytes = 0;
  int64_t values = 0;
  bool version2 = false;
};

Chunk read_chunk(ThriftReader& in) {
  Chunk chunk;
  in.read_struct([&](int field, Type type) {
    if (field != 3) {
      return in.skip(type);
    }
    in.read_struct([&](int of, Type inner) {
      switch (of) {
        case 1:
          chunk.type = static_cast<Physical>(in.integer());
          break;
        case 4:
          chunk.codec = static_cast<Codec>(in.integer());
          break;
        case 5:
          chunk.values = in.integer();
          break;
        case 7:
          chunk.bytes = in.integer();
          break;
        case 9:
          chunk.data_offset = in.integer();
          break;
        case 11:
          chunk.dictionary_offset = in.integer();
          break;
        default:
          in.skip(inner);
      }
    });
  });
  return chunk;
}

void read_schema(ThriftReader& in, Metadata& out) {
  bool root = true;
  in.read_list([&](Type /*type*/) {
    ColumnSpec column;
    bool group = false;
    in.read_struct([&](int field, Type type) {
      switch (field) {
        case 1:
          column.type = static_cast<Physical>(in.integer());
          break;
        case 3: {
          const int64_t repetition = in.integer();
          column.optional = repetition == 1;
          group |= repetition == 2;
          break;
        }
        case 4:
          column.name = in.binary();
          break;
        case 5:
          group = in.integer() > 0;
          break;
        default:
          in.skip(type);
      }
    });
    if (!root) {
      out.nested |= group;
      out.columns.push_back(std::move(column));
    }
    root = false;
  });
}

Metadata read_metadata(ThriftReader& in) {
  Metadata out;
  in.read_struct([&](int field, Type type) {
    if (field == 2) {
      read_schema(in, out);
    } else if (field == 3) {
      out.rows = in.integer();
    } else if (field == 4) {
      in.read_list([&](Type /*element*/) {
        std::vector<Chunk>& group = out.row_groups.emplace_back();
        in.read_struct([&](int of, Type inner) {
          if (of != 1) {
            return in.skip(inner);
          }
          in.read_list([&](Type /*chunk*/) { group.push_back(read_chunk(in)); });
        });
      });
    } else {
      in.skip(type);
    }
  });
  return out;
}

PageHeader read_page_header(ThriftReader& in) {
  PageHeader page;
  in.read_struct([&](int field, Type type) {
    switch (field) {
      case 1:
        page.kind = static_cast<PageKind>(in.integer());
        break;
      case 2:
        page.plain_bytes = in.integer();
        break;
      case 3:
        page.stored_bytes = in.integer();
        break;
      case 5:  // of a data page
      case 7:  // of a dictionary page
        in.read_struct([&](int of, Type inner) {
          if (of == 1) {
            page.values = in.integer();
          } else if (of == 2) {
            page.encoding = static_cast<Encoding>(in.integer());
          } else {
            in.skip(inner);
          }
        });
        break;
      default:
        page.version2 |= field == 8;
        in.skip(type);
    }
  });
  return page;
}

Result<std::string> unpack(std::string_view stored, int64_t plain_bytes, Codec codec) {
  std::string plain(static_cast<size_t>(plain_bytes), '\0');
  bool fits = false;
  if (codec == Codec::kNone) {
    fits = stored.size() == plain.size();
    plain = stored;
  } else if (codec == Codec::kZstd) {
    fits =
        ZSTD_decompress(plain.data(), plain.size(), stored.data(), stored.size()) == plain.size();
  } else if (codec == Codec::kSnappy) {
    size_t length = 0;
    fits = snappy_uncompressed_length(stored.data(), stored.size(), &length) == SNAPPY_OK &&
           length == plain.size() &&
           snappy_uncompress(stored.data(), stored.size(), plain.data(), &length) == SNAPPY_OK;
  } else {
    return Error(Code::kUnsupported,
                 fmt::format("compression {} is not understood, only none, snappy and zstd",
                             static_cast<int64_t>(codec)));
  }
  if (!fits) {
    return Error(Code::kInvalidArgument, "a page is damaged");
  }
  return plain;
}

/// The hybrid of runs and packed bits: `count` numbers of `width` bits.
class HybridReader {
 public:
  HybridReader(std::string_view bytes, uint32_t width) : bytes_(bytes), width_(width) {}

  std::optional<uint32_t> next() {
    if (left_ == 0 && !begin_run()) {
      return std::nullopt;
    }
    --left_;
    if (repeated_) {
      return value_;
    }
    uint64_t bits = 0;
    const size_t first = static_cast<size_t>(bit_ / 8);
    for (size_t i = 0; i < 5 && first + i < packed_.size(); ++i) {
      bits |= uint64_t{static_cast<uint8_t>(packed_[first + i])} << (8 * i);
    }
    const auto value = static_cast<uint32_t>((bits >> (bit_ % 8)) & ((uint64_t{1} << width_) - 1));
    bit_ += width_;
    return value;
  }

 private:
  bool begin_run() {
    uint64_t header = 0;
    for (int shift = 0;; shift += 7) {
      if (bytes_.empty() || shift > 28) {
        return false;
      }
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      header |= uint64_t{byte & 127U} << shift;
      if (byte < 128) {
        break;
      }
    }
    repeated_ = (header & 1) == 0;
    if (repeated_) {
      const size_t size = (width_ + 7) / 8;
      if (bytes_.size() < size) {
        return false;
      }
      value_ = 0;
      std::memcpy(&value_, bytes_.data(), size);
      bytes_.remove_prefix(size);
      left_ = header >> 1;
    } else {
      const uint64_t size = std::min<uint64_t>((header >> 1) * width_, bytes_.size());
      packed_ = bytes_.substr(0, size);
      bytes_.remove_prefix(size);
      bit_ = 0;
      left_ = width_ == 0 ? (header >> 1) * 8 : size * 8 / width_;
    }
    return left_ > 0;
  }

  std::string_view bytes_;
  uint32_t width_;
  bool repeated_ = false;
  uint32_t value_ = 0;
  uint64_t left_ = 0;
  std::string_view packed_;
  uint64_t bit_ = 0;
};

template <typename T>
std::optional<double> take_number(std::string_view& bytes) {
  if (bytes.size() < sizeof(T)) {
    return std::nullopt;
  }
  T value{};
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return static_cast<double>(value);
}

/// Adds the values of one column, page by page.
class ColumnReader {
 public:
  ColumnReader(const ColumnSpec& spec, ParquetFile::Column& out) : spec_(spec), out_(out) {}

  Status read(std::string_view file, const Chunk& chunk) {
    const int64_t begin = chunk.dictionary_offset > 0
                              ? std::min(chunk.dictionary_offset, chunk.data_offset)
                              : chunk.data_offset;
    if (begin < 0 || chunk.bytes < 0 || chunk.values > static_cast<int64_t>(kParquetRowsMax) ||
        begin > static_cast<int64_t>(file.size()) ||
        chunk.bytes > static_cast<int64_t>(file.size()) - begin) {
      return damaged();
    }
    std::string_view left =
        file.substr(static_cast<size_t>(begin), static_cast<size_t>(chunk.bytes));
    numbers_.clear();
    texts_.clear();
    int64_t values = chunk.values;
    while (values > 0) {
      ThriftReader in(left);
      const PageHeader page = read_page_header(in);
      const bool counts = page.kind != PageKind::kData || page.values <= values;
      if (!in.ok() || !counts || page.values < 0 || page.stored_bytes < 0 || page.plain_bytes < 0 ||
          page.plain_bytes > kPageBytesMax ||
          page.stored_bytes > static_cast<int64_t>(left.size() - in.position())) {
        return damaged();
      }
      if (page.version2) {
        return Error(Code::kUnsupported, "data pages of version 2 are not understood");
      }
      const std::string_view stored =
          left.substr(in.position(), static_cast<size_t>(page.stored_bytes));
      left.remove_prefix(in.position() + stored.size());
      STATOR_TRY(const std::string plain, unpack(stored, page.plain_bytes, chunk.codec));
      if (page.kind == PageKind::kDictionary) {
        STATOR_CHECK(read_dictionary(plain, page.values));
      } else if (page.kind == PageKind::kData) {
        STATOR_CHECK(read_data(plain, page));
        values -= std::max<int64_t>(page.values, 1);
      }
    }
    return {};
  }

 private:
  static Error damaged() { return {Code::kInvalidArgument, "the file is damaged"}; }
  bool is_text() const { return spec_.type == Physical::kBytes; }

  Status read_dictionary(std::string_view bytes, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      if (!take(bytes)) {
        return damaged();
      }
      is_text() ? texts_.emplace_back(text_) : (numbers_.push_back(number_), texts_.emplace_back());
    }
    return {};
  }

  Status read_data(std::string_view bytes, const PageHeader& page) {
    std::optional<HybridReader> present;
    if (spec_.optional) {
      uint32_t size = 0;
      if (bytes.size() < sizeof(size)) {
        return damaged();
      }
      std::memcpy(&size, bytes.data(), sizeof(size));
      bytes.remove_prefix(sizeof(size));
      if (size > bytes.size()) {
        return damaged();
      }
      present.emplace(bytes.substr(0, size), 1);
      bytes.remove_prefix(size);
    }
    std::optional<HybridReader> indices;
    if (page.encoding != Encoding::kPlain) {
      if (page.encoding != Encoding::kRleDictionary &&
          page.encoding != Encoding::kPlainDictionary) {
        return Error(Code::kUnsupported, fmt::format("encoding {} is not understood",
                                                     static_cast<int64_t>(page.encoding)));
      }
      const uint32_t width = bytes.empty() ? 33 : static_cast<uint8_t>(bytes.front());
      if (width > 32) {
        return damaged();
      }
      indices.emplace(bytes.substr(1), width);
    }
    for (int64_t i = 0; i < page.values; ++i) {
      const std::optional<uint32_t> is_there = present ? present->next() : 1U;
      if (!is_there || (*is_there != 0 && !(indices ? look_up(*indices) : take(bytes)))) {
        return damaged();
      }
      append(*is_there != 0);
    }
    return {};
  }

  bool look_up(HybridReader& indices) {
    const std::optional<uint32_t> index = indices.next();
    if (!index || *index >= texts_.size()) {
      return false;
    }
    is_text() ? void(text_ = texts_[*index]) : void(number_ = numbers_[*index]);
    return true;
  }

  void append(bool is_there) {
    if (is_text()) {
      std::get<ParquetFile::Texts>(out_).push_back(is_there ? text_ : std::string());
    } else {
      std::get<ParquetFile::Numbers>(out_).push_back(
          is_there ? number_ : std::numeric_limits<double>::quiet_NaN());
    }
  }

  /// The next plain value, into number_ or text_.
  bool take(std::string_view& bytes) {
    std::optional<double> number;
    switch (spec_.type) {
      case Physical::kInt32:
        number = take_number<int32_t>(bytes);
        break;
      case Physical::kInt64:
        number = take_number<int64_t>(bytes);
        break;
      case Physical::kFloat:
        number = take_number<float>(bytes);
        break;
      case Physical::kDouble:
        number = take_number<double>(bytes);
        break;
      default: {
        uint32_t size = 0;
        if (bytes.size() < sizeof(size)) {
          return false;
        }
        std::memcpy(&size, bytes.data(), sizeof(size));
        bytes.remove_prefix(sizeof(size));
        if (size > bytes.size()) {
          return false;
        }
        text_ = bytes.substr(0, size);
        bytes.remove_prefix(size);
        return true;
      }
    }
    number_ = number.value_or(0);
    return number.has_value();
  }

  const ColumnSpec& spec_;
  ParquetFile::Column& out_;
  std::vector<double> numbers_;     // the dictionary
  std::vector<std::string> texts_;  // as long as it, whatever its type
  double number_ = 0;
  std::string text_;
};

bool is_readable(Physical type) {
  return type == Physical::kInt32 || type == Physical::kInt64 || type == Physical::kFloat ||
         type == Physical::kDouble || type == Physical::kBytes;
}

}  // namespace

Result<ParquetFile> ParquetFile::read(const std::string& path) {
  STATOR_TRY(const std::string bytes, io::read_file(path, kParquetBytesMax));
  return parse(bytes, path);
}

Result<ParquetFile> ParquetFile::parse(std::string_view bytes, std::string_view name) {
  const auto refuse = [&](Code code, std::string_view what) {
    return Error(code, fmt::format("'{}': {}", name, what));
  };
  constexpr size_t kTail = 8;
  if (bytes.size() < kMagic.size() + kTail || !bytes.starts_with(kMagic) ||
      !bytes.ends_with(kMagic)) {
    return refuse(Code::kInvalidArgument, "not a Parquet file");
  }
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + bytes.size() - kTail, sizeof(length));
  if (length > bytes.size() - kTail) {
    return refuse(Code::kInvalidArgument, "the file is damaged");
  }
  ThriftReader in(bytes.substr(bytes.size() - kTail - length, length));
  const Metadata metadata = read_metadata(in);
  if (!in.ok() || metadata.rows < 0 || static_cast<uint64_t>(metadata.rows) > kParquetRowsMax) {
    return refuse(Code::kInvalidArgument, "the metadata are damaged");
  }
  if (metadata.nested) {
    return refuse(Code::kUnsupported, "nested columns are not understood");
  }
  ParquetFile file;
  file.name_ = name;
  file.rows_ = static_cast<uint64_t>(metadata.rows);
  for (size_t i = 0; i < metadata.columns.size(); ++i) {
    const ColumnSpec& spec = metadata.columns[i];
    if (!is_readable(spec.type)) {
      continue;  // nobody can ask for it
    }
    Column values = spec.type == Physical::kBytes ? Column(Texts()) : Column(Numbers());
    ColumnReader reader(spec, values);
    for (const std::vector<Chunk>& group : metadata.row_groups) {
      if (i >= group.size()) {
        return refuse(Code::kInvalidArgument, "the file is damaged");
      }
      if (Status read = reader.read(bytes, group[i]); !read) {
        return refuse(read.error().code(),
                      fmt::format("column {}: {}", spec.name, read.error().message()));
      }
    }
    const size_t count = std::visit([](const auto& of) { return of.size(); }, values);
    if (count != file.rows_) {
      return refuse(Code::kInvalidArgument, fmt::format("column {} is incomplete", spec.name));
    }
    file.columns_.push_back({spec.name, std::move(values)});
  }
  return file;
}

const ParquetFile::Column* ParquetFile::find(std::string_view column) const {
  const auto found = std::ranges::find(columns_, column, &Named::name);
  return found == columns_.end() ? nullptr : &found->values;
}

Error ParquetFile::missing(std::string_view column, std::string_view kind) const {
  std::string names;
  for (const Named& known : columns_) {
    names += names.empty() ? "" : ", ";
    names += known.name;
  }
  return {Code::kNotFound, fmt::format("'{}' has no column '{}' of {}; its columns: {}", name_,
                                       column, kind, names)};
}

Result<std::span<const double>> ParquetFile::numbers(std::string_view column) const {
  const Column* found = find(column);
  if (found == nullptr || !std::holds_alternative<Numbers>(*found)) {
    return missing(column, "numbers");
  }
  return std::span<const double>(std::get<Numbers>(*found));
}

Result<std::span<const std::string>> ParquetFile::texts(std::string_view column) const {
  const Column* found = find(column);
  if (found == nullptr || !std::holds_alternative<Texts>(*found)) {
    return missing(column, "text");
  }
  return std::span<const std::string>(std::get<Texts>(*found));
}

}  // namespace stator::perf
