#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What class_size.py counts; run as the test `tidy.class_size`."""

import pathlib
import unittest

import class_size

HEADER = """
class Small final : public Base<int, 3> {
 public:
  Small() = default;
  Small(const Small&) = delete;
  explicit Small(int size) : list_{size}, size_(size) {}
  int size() const { return size_; }
  template <typename T>
  void put(std::map<int, T> values, T other = T{1, 2}) STATOR_REQUIRES(mutex_);
  bool operator==(const Small& other) const = default;
  struct Inner {
    int one() const;
    int two() const;
  };

 private:
  static constexpr int kLimit = 3;
  std::function<void(int, int)> callback_;
  int size_ STATOR_GUARDED_BY(mutex_) = compute(1, 2);
  std::vector<int> list_{1, 2};
};
"""

SOURCE = """
void Small::put(int a, int b, int c, int d, int e,
                std::pair<int, int> f) {
  call(a);
}

namespace {
int helper(int a, int b) {
  return a;
}
}  // namespace
"""


class ClassSizeTest(unittest.TestCase):
    def test_methods_are_what_a_class_declares_itself(self):
        found = {name: (methods, widest) for name, methods, _, widest in class_size.classes_of(HEADER)}
        self.assertEqual(found["Small"], (3, 2))  # a constructor, size(), put()
        self.assertEqual(found["Inner"], (2, 0))

    def test_parameters_are_counted_at_their_own_depth(self):
        self.assertEqual([(o, p) for o, _, p in class_size.definitions_of(SOURCE)], [("Small", 6), (None, 2)])

    def test_a_class_has_the_lines_of_all_its_files(self):
        sizes = class_size.ClassSizes()
        header = "class Big {\n" + "  int field_;\n" * 400 + "};\n"
        sizes.add(pathlib.Path("m/big.h"), "m", header, header)
        body = "void Big::run() {\n" + "  go();\n" * 200 + "}\n"
        sizes.add(pathlib.Path("m/big.cc"), "m", body, body)
        self.assertEqual([(rule, figure) for rule, _, _, figure in sizes.findings()], [("class", 604)])


if __name__ == "__main__":
    unittest.main()
