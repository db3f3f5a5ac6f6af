// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/operator_database.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "stator/perf/engine_model.h"

namespace stator::perf {
namespace {

EngineSpec spec_of() {
  EngineSpec spec;
  spec.model = *read_model_config("Qwen/Qwen3-8B");
  spec.system = *find_system("h200_sxm");
  spec.weights = spec.experts = *find_quant("bfloat16");
  spec.kv = *find_quant("bfloat16");
  return spec;
}

/// A file of measurements, each kernel at so much of the speed of light that its time is `ms`.
std::string file_with(const std::vector<std::vector<double>>& gemms,
                      std::string_view system = "h200_sxm",
                      std::string_view dtypes = "[\"bfloat16\"]") {
  std::vector<double> numbers;
  for (const auto& row : gemms) {
    numbers.insert(numbers.end(), row.begin(), row.end());
  }
  std::string out = "STATOR-OPERATORS-1\n{\"system\":\"" + std::string(system) +
                    "\",\"backend\":\"vllm\",\"dtypes\":" + std::string(dtypes) +
                    ",\"notes\":[],\"numbers\":[" + std::to_string(numbers.size()) + ",0,0,0,0]}\n";
  out.append((8 - out.size() % 8) % 8, '\n');
  out.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
  return out;
}

TEST(OperatorDatabase, AMeasuredShapeAnswersWithWhatWasMeasured) {
  const EngineSpec spec = spec_of();
  const OperatorDatabase database(*OperatorTables::parse(
      file_with({{0, 1, 4096, 4096, 0.02}, {0, 64, 4096, 4096, 0.03}, {0, 64, 512, 512, 9}})));

  const OperatorCurve curve = database.gemm(spec, 4096, 4096, "bfloat16");

  EXPECT_TRUE(curve.note.empty()) << curve.note;
  EXPECT_EQ(curve.low, 1);
  EXPECT_EQ(curve.high, 64);
  const double light = 2.0 * 4096 * 4096 / spec.system.memory_bytes_per_s * 1e3;
  EXPECT_NEAR(light / curve.utilisation.at(1, 1), 0.02, 0.0002);
}

TEST(OperatorDatabase, TimesNeverFallWithRowsNorBelowLightWhereTheTableDoesNot) {
  const EngineSpec spec = spec_of();
  const double n = 4096, k = 4096;
  // Flat, then across the size from which arithmetic is the limit, then beyond what was measured.
  const OperatorDatabase database(*OperatorTables::parse(file_with(
      {{0, 1, n, k, 0.03}, {0, 16, n, k, 0.03}, {0, 1024, n, k, 0.06}, {0, 4096, n, k, 0.2}})));
  const OperatorCurve curve = database.gemm(spec, n, k, "bfloat16");
  double before = 0;
  for (double m = 1; m < 10'000; m = std::ceil(m * 1.1)) {
    const double math = 2 * m * n * k / spec.system.bfloat16_flops;
    const double traffic = 2 * (n * k + m * k + m * n) / spec.system.memory_bytes_per_s;
    const double light = std::max(math, traffic) * 1e3, time = light / curve.utilisation.at(m, 1);
    EXPECT_GE(time, light * (1 - 1e-9)) << m;
    EXPECT_GE(time, before * 0.99) << m;
    before = time;
  }
}

TEST(OperatorDatabase, KernelsThatWaitedForTheHostAreAnsweredByTheirSibling) {
  EngineSpec spec = spec_of();
  const std::string_view dtypes = "[\"bfloat16\",\"fp8\",\"fp8_block\"]";
  const OperatorDatabase database(*OperatorTables::parse(file_with({{0, 1, 4096, 4096, 0.01},
                                                                    {1, 1, 4096, 4096, 0.006},
                                                                    {1, 8192, 4096, 4096, 0.26},
                                                                    {2, 1, 4096, 4096, 0.06},
                                                                    {2, 8192, 4096, 4096, 0.28}},
                                                                   "h200_sxm", dtypes)));
  const OperatorCurve plain = database.gemm(spec, 4096, 4096, "fp8");
  const OperatorCurve block = database.gemm(spec, 4096, 4096, "fp8_block");

  EXPECT_TRUE(plain.note.empty()) << plain.note;
  EXPECT_NE(block.note.find("waited for the host"), std::string::npos) << block.note;
  EXPECT_DOUBLE_EQ(block.utilisation.at(1, 1), plain.utilisation.at(1, 1));
  EXPECT_NEAR(block.utilisation.at(8192, 1) / plain.utilisation.at(8192, 1), 0.26 / 0.28, 1e-9);

  const OperatorDatabase alone(*OperatorTables::parse(
      file_with({{0, 1, 4096, 4096, 0.01}, {2, 1, 4096, 4096, 0.06}}, "h200_sxm", dtypes)));
  const OperatorCurve none = alone.gemm(spec, 4096, 4096, "fp8_block");
  EXPECT_TRUE(none.empty());
  EXPECT_NE(none.note.find("roofline"), std::string::npos);
}

TEST(OperatorDatabase, AnUnknownShapeIsBlendedAndSaysSo) {
  const OperatorDatabase database(
      *OperatorTables::parse(file_with({{0, 1, 4096, 4096, 0.02}, {0, 1, 8192, 4096, 0.03}})));
  const OperatorCurve curve = database.gemm(spec_of(), 6000, 4096, "bfloat16");
  EXPECT_NE(curve.note.find("blended"), std::string::npos);
  EXPECT_EQ(curve.provenance, Provenance::kInterpolated);
}

TEST(OperatorDatabase, WhatWasNotMeasuredIsTheRooflineAndNamed) {
  const auto database = std::make_shared<const OperatorDatabase>(
      *OperatorTables::parse(file_with({{0, 1, 64, 64, 1}})));
  EXPECT_TRUE(database->gemm(spec_of(), 64, 64, "fp8").empty());

  const auto with = EngineModel::create(spec_of(), database);
  const auto without = EngineModel::create(spec_of());

  ASSERT_TRUE(with && without);
  EXPECT_EQ(with->provenance(), Provenance::kRoofline);  // attention has no table
  EXPECT_FALSE(with->gaps().empty());
  const EnginePass pass{.decode_requests = 8, .decode_context = 1000};
  EXPECT_GT(with->step_ms(pass), 0);
  EXPECT_TRUE(std::isfinite(with->step_ms(pass)));
}

TEST(OperatorTables, AMappedFileIsWhatWasSaved) {
  const auto path = std::filesystem::temp_directory_path() / "stator-operators-test";
  const auto tables = *OperatorTables::parse(file_with({{0, 1, 64, 64, 1}}));
  std::ofstream(path, std::ios::binary) << tables->save();

  const auto mapped = OperatorTables::open(path.string());

  ASSERT_TRUE(mapped) << mapped.error().message();
  EXPECT_EQ((*mapped)->rows(OperatorTable::kGemm).size(), 5U);
  EXPECT_EQ((*mapped)->rows(OperatorTable::kGemm)[4], 1);
  EXPECT_TRUE(OperatorDatabase::read(path.string(), spec_of()));
  EngineSpec other = spec_of();
  other.backend = Backend::kSglang;
  const auto refused = OperatorDatabase::read(path.string(), other);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("vllm on h200_sxm"), std::string::npos);
  std::filesystem::remove(path);
}

TEST(OperatorTables, CutFilesAndOtherFilesAreRefused) {
  const std::string whole = file_with({{0, 1, 64, 64, 1}});
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(OperatorTables::parse(std::string_view(whole).substr(0, length))) << length;
  }
  EXPECT_FALSE(OperatorTables::parse("PAR1"));
}

TEST(OperatorTables, AFolderWithoutTheGpuListsWhatItHas) {
  const auto folder = std::filesystem::temp_directory_path() / "stator-database-test";
  std::filesystem::create_directories(folder / "b200_sxm");
  const auto tables = OperatorTables::read(folder.string(), "h200_sxm", "vllm");
  ASSERT_FALSE(tables);
  EXPECT_NE(tables.error().message().find("b200_sxm"), std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace stator::perf
