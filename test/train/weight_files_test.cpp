// Values of weight files that a model cannot be computed with.
#include "train/weight_files.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "arch/families.h"
#include "arch/hf_config.h"
#include "base/error.h"
#include "checkpoint/format/safetensors.h"
#include "golden_file.h"
#include "temporary_folder.h"
#include "torch_catch.h"

namespace automodel {
namespace {

TEST_CASE("a table that names an expert which the model lacks is refused, others are read exactly", "[train]") {
  auto parsed = arch::parse_hf_config(golden::load("hf_families/deepseek_v4.json")["config"].dump(), "config.json");
  REQUIRE(parsed.spec);
  plan::ModelChoice model;
  model.spec = *parsed.spec;
  model.layout = arch::layout_of(model.spec);
  model::Weight table;
  std::vector<checkpoint::TensorInfo> infos;
  for (const auto& parameter : arch::parameters(model.layout)) {
    const std::vector<std::int64_t> shape(parameter.shape.begin(), parameter.shape.end());
    const bool numbers = parameter.part == arch::Part::kRouterTable;
    infos.push_back({parameter.fqn, numbers ? checkpoint::ElementType::kI64 : checkpoint::ElementType::kF32, shape});
    if (!numbers) continue;
    table.info = parameter;
    table.full = shape;
  }
  REQUIRE(table.full.size() == 2);
  const auto layout = checkpoint::lay_out(infos);
  for (const std::int64_t expert : {std::int64_t{5}, std::int64_t{6}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    CAPTURE(expert);
    test::TemporaryFolder folder;
    const auto path = folder.write("model.safetensors", layout.head);
    std::filesystem::resize_file(path, layout.file_size);
    for (const auto& tensor : layout.tensors) {
      if (tensor.name != table.info.fqn) continue;
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(layout.position(tensor) + 7 * sizeof(expert)));
      file.write(reinterpret_cast<const char*>(&expert), sizeof(expert));
    }
    Diagnostics problems;
    const auto files = train::WeightFiles::open(folder.path(), model, false, problems);
    INFO(to_text(problems));
    REQUIRE(files);
    const auto out = at::empty({table.full[0] * table.full[1]}, at::kBFloat16);
    if (expert >= 0 && expert < model.spec.moe->experts) {
      files->read(table, 0, out);
      CHECK(out[7].item<double>() == static_cast<double>(expert));
      CHECK(out.sum().item<double>() == static_cast<double>(expert));
      continue;
    }
    try {
      files->read(table, 0, out);
      FAIL("it was read");
    } catch (const Error& error) {
      CHECK(error.problems().front().id == "expert-out-of-range");
      CHECK(error.problems().front().message.find("one of the model's 6") != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace automodel
