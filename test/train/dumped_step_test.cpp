// No false alarm: right gradients that were computed in a lower precision are equal within the default tolerance, for
// every kind of model that the recorded steps have.
#include "train/dumped_step.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "against/finding.h"
#include "against/written_dump.h"
#include "base/random.h"
#include "comm/loopback/loopback.h"
#include "config/recipe.h"
#include "data/batch.h"
#include "estimate/estimated_plan.h"
#include "golden_folder.h"
#include "plan/lr_schedule.h"
#include "torch_catch.h"
#include "train/gather.h"
#include "train/trainer.h"
#include "train/weight_files.h"

namespace automodel {
namespace {

namespace fs = std::filesystem;
using checkpoint::ElementType;

/// What a trainer in this type would dump of the batch in `folder`: gradients by the checkpoint's names, and the loss.
std::pair<test::WrittenTensors, double> computed(const fs::path& folder, comm::World& world, const std::string& dtype,
                                                 const against::DumpedBatch& batch) {
  const auto text =
      "device: cpu\nmodel: {pretrained_model_name_or_path: " + (folder / "model").native() + ", torch_dtype: " + dtype +
      "}\nstep_scheduler: {global_batch_size: ROWS, local_batch_size: ROWS, max_steps: 1}\ndistributed: {strategy: "
      "ddp}\n";
  std::string filled = text;
  for (auto at = filled.find("ROWS"); at != std::string::npos; at = filled.find("ROWS"))
    filled.replace(at, 4, std::to_string(batch.rows));
  const auto loaded = config::read_recipe(filled, "test", {}, {});
  const auto made = estimate::make_plan(loaded, {.world_size = 1, .training = true});
  INFO(to_text(made.problems));
  REQUIRE(made.plan);
  Diagnostics problems;
  const auto files = train::WeightFiles::open(made.plan->model->folder, *made.plan->model, true, problems);
  REQUIRE(files);
  train::Runtime runtime(*made.plan, world, train::stored_values(files));
  train::Trainer trainer(runtime, *plan::make_lr_schedule({}, 1e-3, 0, 1, problems));
  std::vector<data::Sample> samples;
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    auto& sample = samples.emplace_back();
    for (std::int64_t t = 0; t < batch.tokens; ++t) {
      const auto at = static_cast<std::size_t>(row * batch.tokens + t);
      sample.input_ids.push_back(static_cast<std::int32_t>(batch.ids[at]));
      sample.labels.push_back(t + 1 < batch.tokens ? static_cast<std::int32_t>(batch.labels[at + 1])
                                                   : data::kIgnoredLabel);
    }
  }
  const auto result =
      trainer.gradients(0, {data::make_batch(samples, std::vector<std::int64_t>(samples.size(), 0), {})}, false);
  std::pair<test::WrittenTensors, double> out;
  out.second = result.loss;
  for (const auto& [name, gradient] : train::gather_gradients(runtime)) {
    const auto* values = gradient.const_data_ptr<double>();
    out.first[name] = {gradient.sizes().vec(), std::vector<double>(values, values + gradient.numel()),
                       ElementType::kF32};
  }
  return out;
}

/// Dumps the step of the model in `folder` as a trainer in each type computes it, and compares.
void check_types(const fs::path& folder, const against::DumpedBatch& batch, comm::World& world) {
  for (const auto& [dtype, type] : std::vector<std::pair<std::string, ElementType>>{{"float32", ElementType::kF32},
                                                                                    {"bfloat16", ElementType::kBF16}}) {
    auto [gradients, loss] = computed(folder, world, dtype, batch);
    for (auto& [name, gradient] : gradients) gradient.type = type;
    std::ofstream(folder / "gradients.safetensors", std::ios::binary) << test::safetensors_of(gradients);
    std::ofstream(folder / "meta.json") << "{\"loss\": " << loss << "}";  // six digits, as in a log
    train::DumpedStep step(folder, world);
    const auto evidence = step.evidence();
    const auto comparison = against::compare(evidence, step);
    double worst = 0;
    for (const auto& each : comparison.likenesses) worst = std::max(worst, each.relative_difference);
    const double used = worst / evidence.tolerance.relative;
    INFO(dtype << ": " << used << " of the tolerance\n" << against::to_text(comparison));
    CHECK(comparison.finding.id == against::FindingId::kEqual);
    CHECK(used < 0.75);  // rounding differs between processors
  }
}

TEST_CASE("right gradients of lower precision are equal") {
  const auto outcome = comm::run_ranks(1, [](comm::World& world) {
    for (const auto& entry : fs::directory_iterator(fs::path(golden_folder()) / "gradient_dumps")) {
      INFO(entry.path().filename());
      const test::TemporaryFolder folder;
      fs::copy(entry.path(), folder.path(), fs::copy_options::recursive);
      const auto batch = train::DumpedStep(folder.path(), world).dump().batch();
      check_types(folder.path(), batch, world);
    }
  });
  INFO(outcome.text);
  CHECK(outcome.ok());
}

TEST_CASE("right gradients of other families are equal, by the names of their checkpoints") {
  const auto outcome = comm::run_ranks(1, [](comm::World& world) {
    for (const auto& entry : fs::directory_iterator(fs::path(golden_folder()) / "hf/models")) {
      INFO(entry.path().filename());
      const test::TemporaryFolder folder;
      fs::copy(entry.path(), folder.path() / "model", fs::copy_options::recursive);
      against::DumpedBatch batch{.rows = 3, .tokens = 24};
      const RandomStream random(1, entry.path().filename().native());
      for (std::uint64_t i = 0; i < 72; ++i) {
        batch.ids.push_back(static_cast<std::int64_t>(random.below(i, 64)));
        batch.labels.push_back(i % 7 == 0 ? against::kIgnored : batch.ids.back());
      }
      test::WrittenTensors written;
      written["input_ids"] = test::numbers({3, 24}, {batch.ids.begin(), batch.ids.end()});
      written["labels"] = test::numbers({3, 24}, {batch.labels.begin(), batch.labels.end()});
      folder.write("batch.safetensors", test::safetensors_of(written));
      check_types(folder.path(), batch, world);
    }
  });
  INFO(outcome.text);
  CHECK(outcome.ok());
}

TEST_CASE("positions that begin anew separate documents where no mask is given, not even one of ones") {
  const auto outcome = comm::run_ranks(1, [](comm::World& world) {
    const test::TemporaryFolder folder;
    fs::copy(fs::path(golden_folder()) / "gradient_dumps/right", folder.path(), fs::copy_options::recursive);
    const auto loss = [&](std::int64_t changed, const std::vector<double>& mask) {
      std::vector<double> ids, positions, labels;
      for (std::int64_t t = 0; t < 12; ++t) {
        ids.push_back(static_cast<double>(t == changed ? 40 : t + 1));
        positions.push_back(static_cast<double>(t % 6));
        labels.push_back(t > 6 && t < 11 ? static_cast<double>(t + 1) : against::kIgnored);  // the second document's
      }
      test::WrittenTensors batch;
      batch["input_ids"] = test::numbers({1, 12}, ids);
      batch["labels"] = test::numbers({1, 12}, labels);
      batch["position_ids"] = test::numbers({1, 12}, positions);
      if (!mask.empty()) batch["attention_mask"] = test::numbers({1, 12}, mask);
      fs::remove(folder.path() / "batch.safetensors");
      folder.write("batch.safetensors", test::safetensors_of(batch));
      return train::DumpedStep(folder.path(), world).evidence().our_loss;
    };
    const std::vector<double> ones(12, 1);
    auto padded = ones;
    padded.back() = 0;  // a token on which no label depends
    CHECK(loss(2, {}) == Approx(loss(-1, {})).epsilon(1e-12));
    CHECK(std::abs(loss(2, ones) - loss(-1, ones)) > 1e-6);
    CHECK(loss(-1, ones) == Approx(loss(-1, padded)).epsilon(1e-12));
  });
  INFO(outcome.text);
  CHECK(outcome.ok());
}

}  // namespace
}  // namespace automodel
