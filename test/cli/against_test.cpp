// `automodel verify --against` as a user runs it: recorded steps of transformers, right ones and defective ones, and
// damaged folders.
#include <algorithm>
#include <filesystem>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "against/written_dump.h"
#include "checkpoint/format/tensor_file.h"
#include "cli/program.h"
#include "golden_folder.h"

namespace automodel {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

test::WrittenTensors tensors_of(const fs::path& path) {
  Diagnostics problems;
  const auto file = checkpoint::TensorFile::open(path, problems);
  REQUIRE(file);
  test::WrittenTensors out;
  for (const auto& info : file->header().tensors) {
    auto& tensor = out[info.name];
    tensor = {info.shape, std::vector<double>(static_cast<std::size_t>(info.elements())), info.type};
    std::string bytes(info.bytes(), '\0');
    file->read(info, 0, bytes.data(), bytes.size());
    if (info.type == checkpoint::ElementType::kI64)
      for (std::size_t i = 0; i < tensor.values.size(); ++i) {
        std::int64_t value = 0;
        std::memcpy(&value, bytes.data() + 8 * i, 8);
        tensor.values[i] = static_cast<double>(value);
      }
    else
      checkpoint::convert_elements(info.type, bytes.data(), checkpoint::ElementType::kF64,
                                   reinterpret_cast<char*>(tensor.values.data()), info.elements());
  }
  return out;
}

/// A recorded step in a folder of its own, to be changed.
struct Step {
  explicit Step(const std::string& name) {
    fs::copy(fs::path(golden_folder()) / "gradient_dumps" / name, folder.path() / "dump", fs::copy_options::recursive);
    gradients = tensors_of(folder.path() / "dump/gradients.safetensors");
    batch = tensors_of(folder.path() / "dump/batch.safetensors");
  }
  void write() const {
    folder.write("dump/gradients.safetensors", test::safetensors_of(gradients));
    folder.write("dump/batch.safetensors", test::safetensors_of(batch));
  }
  test::Outcome run(const std::string& words = "") const {
    return test::run_program(folder, "verify --against dump " + words);
  }
  json compared(int code) const {
    const auto run_ = run("--json");
    INFO(run_.err);
    REQUIRE(run_.code == code);
    return json::parse(run_.out);
  }

  test::TemporaryFolder folder = {};
  test::WrittenTensors gradients = {}, batch = {};
};

TEST_CASE("every recorded step gets its finding") {
  struct Expected {
    std::string name, id, words;
    double factor = -1;  ///< -1: null
    std::size_t tensors = 0;
  };
  const std::vector<Expected> all = {
      {"right", "equal", "36 tensors are equal", -1, 0},
      {"factor", "constant-factor", "0.25 times the right one; 1 / 4: as many as ranks", 0.25, 20},
      {"means", "mean-of-means", "6 microbatches", -1, 21},
      {"rows", "missing-rows", "rows 0 to 4 do not contribute: the gradient is that of row 5 alone", 1, 36},
      {"norms", "kind-of-weight", "norm weights alone differ", -1, 10},
      {"tied", "tied-part", "only the head's part is there", -1, 1},
      {"layer", "layer-factor", "every gradient of layer 1 is 0.5 times", 0.5, 9},
      {"rounding", "rounding", "all of them are bfloat16 numbers", -1, 24},
      {"routers", "kind-of-weight", "routers alone have no gradient", 0, 2},
      {"labels", "labels", "labels are shifted twice", 1, 28},
      {"divisor", "divisor", "divided by 138", 97.0 / 138, 29},
  };
  for (const auto& each : all) {
    const Step step(each.name);
    const auto found = step.compared(each.id == "equal" ? 0 : 3);
    INFO(each.name << ": " << found["finding"].dump());
    CHECK(found["equal"] == (each.id == "equal"));
    CHECK(found["finding"]["id"] == each.id);
    CHECK(found["finding"]["text"].get<std::string>().find(each.words) != std::string::npos);
    CHECK(found["finding"]["tensors"].size() == each.tensors);
    CHECK(found["tensors"].size() == step.gradients.size());
    if (each.factor < 0)
      CHECK(found["finding"]["factor"].is_null());
    else
      CHECK(found["finding"]["factor"].get<double>() == Approx(each.factor).margin(1e-6));
    const auto names = found["finding"]["tensors"].get<std::vector<std::string>>();
    for (const auto& tensor : found["tensors"]) {
      const bool differs = std::ranges::find(names, tensor["name"].get<std::string>()) != names.end();
      CHECK((tensor["relative_difference"].get<double>() > 1e-5) == differs);
    }
  }
}

TEST_CASE("what a right step becomes by losing layers or shards is found, under the checkpoint's dtype too") {
  Step layers("right");
  for (auto& [name, tensor] : layers.gradients)
    if (name.find("layers.1.") != std::string::npos || name.find("layers.2.") != std::string::npos)
      std::ranges::fill(tensor.values, 0.0);
  layers.write();
  auto found = layers.compared(3);
  CHECK(found["finding"]["id"] == "missing-layers");
  CHECK(found["finding"]["text"].get<std::string>().starts_with("layers 1 to 2 have no gradient"));

  Step shard("right");
  auto& down = shard.gradients.at("model.layers.0.mlp.down_proj.weight");
  const auto width = static_cast<std::size_t>(down.shape[1]);
  for (std::size_t i = 0; i < down.values.size(); ++i)
    if (i % width >= width * 3 / 4) down.values[i] = 0;
  shard.write();
  found = shard.compared(3);
  CHECK(found["finding"]["id"] == "missing-shard");
  CHECK(found["finding"]["text"].get<std::string>().find("(1 of 4 parts)") != std::string::npos);

  Step norms("right");
  for (auto& [name, tensor] : norms.gradients)
    if (name.find("norm") != std::string::npos)
      for (auto& value : tensor.values) value /= 2;
  norms.write();
  CHECK(norms.compared(3)["finding"]["text"].get<std::string>().starts_with("norm weights alone are 0.5 times"));

  Step rounded("right");  // gradients in bfloat16 are right in bfloat16
  for (auto& [name, tensor] : rounded.gradients) tensor.type = checkpoint::ElementType::kBF16;
  rounded.write();
  CHECK(rounded.compared(0)["finding"]["id"] == "equal");
  for (auto& [name, tensor] : rounded.gradients)  // each tensor is within bfloat16's tolerance, all together are not
    for (auto& value : tensor.values) value *= 0.95;
  rounded.write();
  found = rounded.compared(3);
  CHECK(found["finding"]["id"] == "constant-factor");
  CHECK(found["finding"]["factor"].get<double>() == Approx(0.95).epsilon(0.005));
  CHECK(found["finding"]["tensors"].size() == rounded.gradients.size());
}

TEST_CASE("the tolerance decides what is equal, and text says what JSON does") {
  const Step step("rounding");
  CHECK(step.run("--tolerance 0.01").code == 0);
  const auto refused = step.run("--tolerance 1e-4");
  CHECK(refused.code == 3);
  CHECK(refused.out.find("DIFFERENT, rounding: gradients differ as by rounding in 16 bits") != std::string::npos);
  CHECK(refused.out.find("model.layers.0.") != std::string::npos);
  CHECK(refused.err.empty());
}

TEST_CASE("padding and positions are read as transformers reads them") {
  // The rows of a right step, with four tokens of padding behind them.
  Step step("right");
  const auto rows = step.batch.at("labels").shape[0], tokens = step.batch.at("labels").shape[1];
  const auto padded = [&](const std::string& name, double with) {
    test::WrittenTensor out{{rows, tokens + 4}, {}, checkpoint::ElementType::kI64};
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t t = 0; t < tokens + 4; ++t)
        out.values.push_back(t >= tokens      ? with
                             : name == "mask" ? 1
                                              : step.batch.at(name).values[static_cast<std::size_t>(row * tokens + t)]);
    return out;
  };
  const auto ids = padded("input_ids", 3), labels = padded("labels", -100), mask = padded("mask", 0);
  step.batch = {{"input_ids", ids}, {"labels", labels}, {"attention_mask", mask}};
  step.write();
  CHECK(step.compared(0)["equal"] == true);
  // RoPE is relative: positions that begin later change nothing, a second document does.
  auto positions = mask;
  for (std::size_t i = 0; i < positions.values.size(); ++i)
    positions.values[i] = 5 + static_cast<double>(i % static_cast<std::size_t>(tokens + 4));
  step.batch = {{"input_ids", ids}, {"labels", labels}, {"position_ids", positions}};
  step.write();
  CHECK(step.compared(0)["equal"] == true);
  for (std::size_t i = 0; i < positions.values.size(); ++i)
    positions.values[i] = static_cast<double>(i % static_cast<std::size_t>(tokens + 4) % 10);
  step.batch["position_ids"] = positions;
  step.write();
  CHECK(step.compared(3)["equal"] == false);
}

TEST_CASE("a model with a vision tower is refused: no pictures are written") {
  const Step step("right");
  const auto model = step.folder.path() / "dump/model";
  fs::remove_all(model);
  fs::copy(golden_folder() + "/vlm/llava", model, fs::copy_options::recursive);
  const auto run = step.run();
  INFO(run.err);
  CHECK(run.code == 3);
  CHECK(run.err.find("error[unsupported-model]: verify --against takes language models only") != std::string::npos);
}

TEST_CASE("damaged dumps are one error each") {
  const auto refuses = [](const std::string& id, const std::string& file, auto damage) {
    Step step("factor");
    damage(step);
    const auto found = step.compared(2)["errors"];
    INFO(id << ": " << found.dump());
    REQUIRE(found.size() == 1);
    CHECK(found[0]["id"] == id);
    CHECK(found[0]["file"].get<std::string>().ends_with(file));
    CHECK(!found[0]["help"].get<std::string>().empty());
  };
  const auto removes = [](const char* name) {
    return [name](const Step& step) { fs::remove_all(step.folder.path() / "dump" / name); };
  };
  refuses("missing-file", "meta.json", removes("meta.json"));
  refuses("missing-file", "batch.safetensors", removes("batch.safetensors"));
  refuses("missing-file", "gradients.safetensors", removes("gradients.safetensors"));
  refuses("missing-file", "dump", removes("model"));
  refuses("missing-weights", "dump/model", removes("model/model.safetensors"));
  refuses("token-out-of-range", "batch.safetensors", [](Step& step) {
    step.batch["input_ids"].values[3] = 64;
    step.write();
  });
  refuses("dump-not-finite", "gradients.safetensors", [](Step& step) {
    step.gradients["model.norm.weight"].values[0] = std::numeric_limits<double>::infinity();
    step.write();
  });
  refuses("dump-not-finite", "dump/model", [](Step& step) {
    auto weights = tensors_of(step.folder.path() / "dump/model/model.safetensors");
    weights["model.norm.weight"].values[0] = std::numeric_limits<double>::quiet_NaN();
    step.folder.write("dump/model/model.safetensors", test::safetensors_of(weights));
  });
  refuses("weights-missing", "gradients.safetensors", [](Step& step) {
    step.gradients.erase("model.norm.weight");
    step.write();
  });
  refuses("bad-json", "config.json", [](Step& step) { step.folder.write("dump/model/config.json", "{"); });
}

TEST_CASE("verify takes no other option beside --against") {
  const Step step("factor");
  for (const auto& [words, said] : std::vector<std::pair<std::string, std::string>>{
           {"verify --against dump r.yaml", "takes its model from the dump"},
           {"verify --against dump --nproc-per-node 2", "takes its model from the dump"},
           {"verify --against dump --tolerance 2", "a number from 0 to 1"},
           {"verify", "RECIPE is required"},
           {"verify r.yaml --tolerance 0.1", "--tolerance is for the gradients of another trainer"}}) {
    const auto run = test::run_program(step.folder, words);
    INFO(words << ": " << run.err);
    CHECK(run.code == 2);
    CHECK(run.err.find("error[usage]") != std::string::npos);
    CHECK(run.err.find(said) != std::string::npos);
  }
  const auto nowhere = test::run_program(step.folder, "verify --against nowhere");
  CHECK(nowhere.code == 2);
  CHECK(nowhere.err.find("nowhere: error[missing-file]") != std::string::npos);
}

}  // namespace
}  // namespace automodel
