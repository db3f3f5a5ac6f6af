// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace stator::profiler {

/// An array of doubles, rows first.
struct NpzArray {
  std::string name;
  std::vector<double> values;
  std::vector<size_t> shape;  ///< empty: one dimension
};

/// The bytes of a NumPy .npz: a ZIP archive, uncompressed, of NAME.npy each. `numpy.load` reads it.
/// Source: NumPy's NEP 1, format version 1.0; PKWARE's APPNOTE 6.3.
std::string write_npz(const std::vector<NpzArray>& arrays);

}  // namespace stator::profiler
