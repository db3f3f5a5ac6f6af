// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/profiler/npz.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace stator::profiler {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are written as they lie");

/// CRC-32 of ZIP (IEEE 802.3, reflected), not the Castagnoli one of core.
uint32_t crc32(std::string_view bytes) {
  static const auto table = [] {
    std::array<uint32_t, 256> out{};
    for (uint32_t i = 0; i < out.size(); ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) {
        value = (value >> 1U) ^ ((value & 1U) != 0 ? 0xEDB88320U : 0);
      }
      out[i] = value;
    }
    return out;
  }();
  uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) {
    crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xFFU] ^ (crc >> 8U);
  }
  return ~crc;
}

template <typename Number>
void put(std::string& out, Number value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string npy(const NpzArray& array) {
  std::string shape;
  for (const size_t each : array.shape) {
    shape += fmt::format("{}, ", each);
  }
  shape = array.shape.empty() ? fmt::format("{},", array.values.size())
                              : shape.substr(0, shape.size() - (array.shape.size() > 1 ? 2 : 1));
  std::string header =
      fmt::format("{{'descr': '<f8', 'fortran_order': False, 'shape': ({}), }}", shape);
  constexpr size_t kBefore = 10, kAlign = 64;
  header.append(kAlign - (kBefore + header.size() + 1) % kAlign, ' ');
  header += '\n';
  std::string out = "\x93NUMPY";
  out += '\x01';
  out += '\0';
  put(out, static_cast<uint16_t>(header.size()));
  out += header;
  out.append(reinterpret_cast<const char*>(array.values.data()),
             array.values.size() * sizeof(double));
  return out;
}

/// What both headers of a member begin with after their signatures.
void put_member(std::string& out, std::string_view name, std::string_view content) {
  put<uint16_t>(out, 20);           // version needed
  put<uint16_t>(out, 0);            // flags
  put<uint16_t>(out, 0);            // stored
  put<uint32_t>(out, 0x00210000U);  // 1980-01-01: the same bytes for the same arrays
  put<uint32_t>(out, crc32(content));
  put<uint32_t>(out, static_cast<uint32_t>(content.size()));
  put<uint32_t>(out, static_cast<uint32_t>(content.size()));
  put<uint16_t>(out, static_cast<uint16_t>(name.size()));
  put<uint16_t>(out, 0);  // extra
}

}  // namespace

std::string write_npz(const std::vector<NpzArray>& arrays) {
  std::string out, directory;
  for (const NpzArray& array : arrays) {
    const std::string name = array.name + ".npy";
    const std::string content = npy(array);
    const auto at = static_cast<uint32_t>(out.size());
    put<uint32_t>(out, 0x04034b50U);
    put_member(out, name, content);
    out += name;
    out += content;
    put<uint32_t>(directory, 0x02014b50U);
    put<uint16_t>(directory, 20);
    put_member(directory, name, content);
    put<uint16_t>(directory, 0);  // comment
    put<uint16_t>(directory, 0);  // disk
    put<uint16_t>(directory, 0);
    put<uint32_t>(directory, 0);
    put<uint32_t>(directory, at);
    directory += name;
  }
  const auto begin = static_cast<uint32_t>(out.size());
  out += directory;
  put<uint32_t>(out, 0x06054b50U);
  put<uint32_t>(out, 0);  // disks
  put<uint16_t>(out, static_cast<uint16_t>(arrays.size()));
  put<uint16_t>(out, static_cast<uint16_t>(arrays.size()));
  put<uint32_t>(out, static_cast<uint32_t>(directory.size()));
  put<uint32_t>(out, begin);
  put<uint16_t>(out, 0);
  return out;
}

}  // namespace stator::profiler
