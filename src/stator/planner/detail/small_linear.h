// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace stator::planner::detail {

/// A x = b of a few dozen unknowns, by Gaussian elimination with partial pivoting.
class LinearSystem {
 public:
  explicit LinearSystem(size_t size) : size_(size), a_(size * size), b_(size) {}
  double& at(size_t row, size_t column) { return a_[row * size_ + column]; }
  /// b before solve(), x after it.
  double& right(size_t row) { return b_[row]; }
  size_t size() const { return size_; }

  /// False if singular; a and b are used up either way.
  bool solve() {
    for (size_t k = 0; k < size_; ++k) {
      size_t pivot = k;
      for (size_t i = k + 1; i < size_; ++i) {
        pivot = std::abs(at(i, k)) > std::abs(at(pivot, k)) ? i : pivot;
      }
      if (!(std::abs(at(pivot, k)) > 1e-14)) {
        return false;
      }
      if (pivot != k) {
        std::swap_ranges(a_.begin() + static_cast<ptrdiff_t>(k * size_),
                         a_.begin() + static_cast<ptrdiff_t>((k + 1) * size_),
                         a_.begin() + static_cast<ptrdiff_t>(pivot * size_));
        std::swap(b_[k], b_[pivot]);
      }
      for (size_t i = k + 1; i < size_; ++i) {
        const double factor = at(i, k) / at(k, k);
        if (factor == 0) {
          continue;
        }
        for (size_t j = k; j < size_; ++j) {
          at(i, j) -= factor * at(k, j);
        }
        b_[i] -= factor * b_[k];
      }
    }
    for (size_t k = size_; k-- > 0;) {
      for (size_t j = k + 1; j < size_; ++j) {
        b_[k] -= at(k, j) * b_[j];
      }
      b_[k] /= at(k, k);
    }
    return true;
  }

 private:
  size_t size_;
  std::vector<double> a_, b_;
};

/// Least squares by normal equations, with a touch of ridge where they are singular.
class LeastSquares {
 public:
  explicit LeastSquares(size_t columns)
      : columns_(columns), normal_(columns * columns), right_(columns) {}
  void add(std::span<const double> row, double target, double weight = 1) {
    for (size_t i = 0; i < columns_; ++i) {
      for (size_t j = 0; j < columns_; ++j) {
        normal_[i * columns_ + j] += weight * row[i] * row[j];
      }
      right_[i] += weight * row[i] * target;
    }
  }
  /// All zero if nothing was added.
  std::vector<double> solve() const {
    double trace = 0;
    for (size_t i = 0; i < columns_; ++i) {
      trace += normal_[i * columns_ + i];
    }
    std::vector<double> x(columns_, 0.0);
    for (const double ridge : {0.0, 1e-9, 1e-6}) {
      LinearSystem system(columns_);
      for (size_t i = 0; i < columns_; ++i) {
        for (size_t j = 0; j < columns_; ++j) {
          system.at(i, j) = normal_[i * columns_ + j];
        }
        system.at(i, i) += ridge * trace;
        system.right(i) = right_[i];
      }
      if (system.solve()) {
        for (size_t i = 0; i < columns_; ++i) {
          x[i] = std::isfinite(system.right(i)) ? system.right(i) : 0;
        }
        return x;
      }
    }
    return x;
  }

 private:
  size_t columns_;
  std::vector<double> normal_, right_;
};

}  // namespace stator::planner::detail
