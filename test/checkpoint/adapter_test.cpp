// Adapters of the PEFT library: read, refused, merged.
#include "checkpoint/format/adapter.h"

#include <cmath>
#include <map>
#include <span>
#include <tuple>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "checkpoint/format/export.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/raw_file.h"
#include "temporary_folder.h"

using namespace automodel;
using namespace automodel::checkpoint;
using automodel::test::bytes_of;
using automodel::test::TemporaryFolder;

namespace {

/// A safetensors file of float matrices, in the order of their names.
std::string file_of(const std::map<std::string, std::pair<std::vector<std::int64_t>, std::vector<float>>>& tensors) {
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : tensors) infos.push_back({name, ElementType::kF32, tensor.first});
  const auto layout = lay_out(infos);
  std::string out = layout.head;
  for (const auto& info : layout.tensors) out += bytes_of(tensors.at(info.name).second);
  return out;
}

const std::string kConfig = R"({"peft_type": "LORA", "r": 1, "lora_alpha": 2.0, "base_model_name_or_path": "base"})";

std::vector<float> weights_of(const std::filesystem::path& folder, const std::string& name) {
  Diagnostics problems;
  const auto opened = TensorFolder::open(folder, "model", problems);
  REQUIRE(opened);
  const auto stored = opened->find(name);
  REQUIRE(stored);
  std::vector<float> out(static_cast<std::size_t>(stored.info->elements()));
  stored.file->read(*stored.info, 0, reinterpret_cast<char*>(out.data()), stored.info->bytes());
  return out;
}

void write_base(const TemporaryFolder& folder) {
  folder.write("base/model.safetensors",
               file_of({{"m.weight", {{2, 3}, {1, 2, 3, 4, 5, 6}}}, {"n.weight", {{1}, {9}}}}));
  folder.write("base/config.json", R"({"dtype": "float32"})");
  folder.write("base/tokenizer.json", "{}");
}

}  // namespace

TEST_CASE("Adapters whose configuration does not name use_rslora are scaled by alpha / r") {
  Diagnostics problems;
  const auto older = parse_adapter_config(kConfig, "adapter_config.json", problems);
  REQUIRE(older);
  CHECK_FALSE(older->rank_stabilized);
  CHECK_FALSE(older->magnitudes);
  CHECK_FALSE(older->transposed);
  CHECK(parse_adapter_config(R"({"use_rslora": true})", "adapter_config.json", problems)->rank_stabilized);
}

TEST_CASE("Merging adds the scaled product B A to weights with an adapter, and copies the rest") {
  const TemporaryFolder folder;
  write_base(folder);
  folder.write("lora/adapter_config.json", kConfig);
  folder.write("lora/adapter_model.safetensors", file_of({{"base_model.model.m.lora_A.weight", {{1, 3}, {1, 10, 100}}},
                                                          {"base_model.model.m.lora_B.weight", {{2, 1}, {1, 2}}}}));
  const auto out = folder.path() / "out";
  const auto report = export_model(folder.path() / "lora", out, {.merge = true, .base = folder.path() / "base"});
  CHECK(report.tensors == 2);
  CHECK(report.merged == 1);
  CHECK(weights_of(out, "m.weight") == std::vector<float>{3, 22, 203, 8, 45, 406});
  CHECK(weights_of(out, "n.weight") == std::vector<float>{9});
  CHECK(folder.read("out/tokenizer.json") == "{}");
  CHECK_FALSE(std::filesystem::exists(out / "adapter_config.json"));
  CHECK_THROWS_AS(export_model(folder.path() / "lora", out, {.merge = true}), Error);  // the output exists already
  CHECK_THROWS_AS(export_model(folder.path() / "lora", folder.path() / "x", {}), Error);
  CHECK_THROWS_AS(export_model(folder.path() / "base", folder.path() / "x", {.merge = true}), Error);
  CHECK_FALSE(std::filesystem::exists(folder.path() / "x.partial"));
}

TEST_CASE("Merging DoRA adapters scales each row to its stored magnitude") {
  const TemporaryFolder folder;
  write_base(folder);
  folder.write(
      "lora/adapter_config.json",
      R"({"peft_type": "LORA", "r": 1, "lora_alpha": 2.0, "use_dora": true, "base_model_name_or_path": "base"})");
  const auto write = [&](const std::vector<float>& lengths) {
    const auto count = static_cast<std::int64_t>(lengths.size());
    folder.write("lora/adapter_model.safetensors",
                 file_of({{"base_model.model.m.lora_A.weight", {{1, 3}, {1, 0, 0}}},
                          {"base_model.model.m.lora_B.weight", {{2, 1}, {0.5, -1}}},
                          {"base_model.model.m.lora_magnitude_vector", {{count}, lengths}}}));
  };
  write({6, 7});
  const auto out = folder.path() / "out";
  export_model(folder.path() / "lora", out, {.merge = true, .base = folder.path() / "base"});
  // Rows (1, 2, 3) and (4, 5, 6) become (2, 2, 3) of length sqrt(17) and (2, 5, 6) of length sqrt(65).
  const auto merged = weights_of(out, "m.weight");
  const std::vector<double> expected = {2, 2, 3, 2, 5, 6};
  for (std::size_t i = 0; i < 6; ++i)
    CHECK(merged[i] == Approx(expected[i] * (i < 3 ? 6 / std::sqrt(17.0) : 7 / std::sqrt(65.0))));
  write({1, 2, 3});
  CHECK_THROWS_AS(export_model(folder.path() / "lora", folder.path() / "x", {.merge = true}), Error);
}

TEST_CASE("An export to another dtype converts the weights and records the dtype in config.json") {
  const TemporaryFolder folder;
  write_base(folder);
  export_model(folder.path() / "base", folder.path() / "out", {.type = ElementType::kBF16});
  Diagnostics problems;
  const auto opened = TensorFolder::open(folder.path() / "out", "model", problems);
  REQUIRE(opened);
  CHECK(opened->find("m.weight").info->type == ElementType::kBF16);
  CHECK(folder.read("out/config.json").find("\"dtype\": \"bfloat16\"") != std::string::npos);
}

TEST_CASE("Merging a weight part by part gives what merging it at once gives") {
  const TemporaryFolder folder;
  folder.write(
      "lora/adapter_config.json",
      R"({"peft_type": "LORA", "r": 1, "lora_alpha": 2.0, "use_dora": true, "base_model_name_or_path": "base"})");
  folder.write("lora/adapter_model.safetensors",
               file_of({{"base_model.model.m.lora_A.weight", {{1, 3}, {1, 10, 100}}},
                        {"base_model.model.m.lora_B.weight", {{2, 1}, {1, 2}}},
                        {"base_model.model.m.lora_magnitude_vector", {{2}, {3, 5}}}}));
  Diagnostics problems;
  auto adapters = Adapters::open(folder.path() / "lora", problems);
  REQUIRE(adapters);
  CHECK(adapters->place([](const std::string& weight) { return Adapters::Part{weight, {2, 3}}; }).empty());
  const auto merged = [&](std::size_t each) {
    const std::vector<float> weight = {1, 2, 3, 4, 5, 6};
    std::vector<std::vector<float>> parts;
    std::vector<double> squares;
    const auto first = [&](std::size_t part) { return static_cast<std::int64_t>(part * each); };
    for (auto at = weight.begin(); at != weight.end(); at += static_cast<std::ptrdiff_t>(each)) {
      auto& part = parts.emplace_back(at, at + static_cast<std::ptrdiff_t>(each));
      adapters->add_to("m.weight", first(parts.size() - 1), part);
      adapters->add_squares("m.weight", first(parts.size() - 1), part, squares);
    }
    std::vector<float> out;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      adapters->scale_rows("m.weight", first(i), squares, parts[i]);
      out.insert(out.end(), parts[i].begin(), parts[i].end());
    }
    return out;
  };
  CHECK(merged(2) == merged(6));
  CHECK(merged(1) == merged(6));
}

TEST_CASE("Adapters are merged where a weight lies within a tensor of several") {
  const TemporaryFolder folder;
  folder.write("lora/adapter_config.json",
               R"({"peft_type": "LORA", "r": 1, "lora_alpha": 2.0, "base_model_name_or_path": "base"})");
  folder.write("lora/adapter_model.safetensors", file_of({{"base_model.model.m.lora_A.weight", {{1, 3}, {1, 10, 100}}},
                                                          {"base_model.model.m.lora_B.weight", {{2, 1}, {1, 2}}}}));
  // 2 B A = [[2, 20, 200], [4, 40, 400]]
  const std::vector<float> behind = {0, 0, 0, 2, 20, 200, 4, 40, 400, 0, 0, 0},
                           turned = {0, 2, 4, 0, 0, 20, 40, 0, 0, 200, 400, 0};
  for (const auto& [wanted, first, stride] : {std::tuple(behind, 3, 0), std::tuple(turned, 1, 4)})
    for (const std::size_t each : {1, 4, 12}) {
      CAPTURE(stride, each);
      Diagnostics problems;
      auto adapters = Adapters::open(folder.path() / "lora", problems);
      REQUIRE(adapters);
      const Adapters::Part part = {"all", {2, 3}, first, stride};
      CHECK(adapters->place([&](const std::string&) { return part; }).empty());
      CHECK(adapters->has("all"));
      std::vector<float> out(wanted.size(), 0);
      for (std::size_t at = 0; at < out.size(); at += each)
        adapters->add_to("all", static_cast<std::int64_t>(at), std::span(out).subspan(at, each));
      CHECK(out == wanted);
    }
  Diagnostics problems;
  auto adapters = Adapters::open(folder.path() / "lora", problems);
  CHECK_THROWS_AS(adapters->place([](const std::string& weight) { return Adapters::Part{weight, {3, 2}}; }), Error);
  CHECK(adapters->place([](const std::string&) { return std::nullopt; }) == std::vector<std::string>{"m.weight"});
}

TEST_CASE("Malformed adapters and adapters of other kinds are refused with the reason") {
  Diagnostics problems;
  for (const char* text :
       {"[]", R"({"peft_type": "IA3"})", R"({"rank_pattern": {"q": 3}})", R"({"r": 0})", R"({"r": "four"})"})
    CHECK_FALSE(parse_adapter_config(text, "a", problems));
  CHECK(problems.size() == 5);
  for (const auto& problem : problems) CHECK(problem.id == "adapter-config");
  const TemporaryFolder folder;
  write_base(folder);
  folder.write("lora/adapter_config.json", kConfig);
  const auto refusal = [&](const std::string& tensors) -> std::string {
    folder.write("lora/adapter_model.safetensors", tensors);
    try {
      export_model(folder.path() / "lora", folder.path() / "out", {.merge = true, .base = folder.path() / "base"});
    } catch (const Error& error) {
      return std::string(error.problems().front().id) + ": " + error.problems().front().message;
    }
    return "";
  };
  const auto a = [](std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const auto size : shape) count *= size;
    return std::pair(shape, std::vector<float>(static_cast<std::size_t>(count)));
  };
  const auto alone = refusal(file_of({{"base_model.model.m.lora_A.weight", a({1, 3})}}));
  CHECK(alone.find("adapter-shape") == 0);
  CHECK(alone.find("no lora_B") != std::string::npos);
  CHECK(refusal(
            file_of({{"base_model.model.m.lora_A.weight", a({2, 3})}, {"base_model.model.m.lora_B.weight", a({2, 2})}}))
            .find("F32 [2, 3]") != std::string::npos);
  CHECK(refusal(file_of({{"other", a({1})}})).find("not part of a LoRA adapter") != std::string::npos);
  CHECK(refusal(
            file_of({{"base_model.model.z.lora_A.weight", a({1, 3})}, {"base_model.model.z.lora_B.weight", a({2, 1})}}))
            .find("has no 'z.weight'") != std::string::npos);
  CHECK(refusal(
            file_of({{"base_model.model.m.lora_A.weight", a({1, 4})}, {"base_model.model.m.lora_B.weight", a({2, 1})}}))
            .find("is for [2, 4]") != std::string::npos);
}

TEST_CASE("Adapters whose configuration changes what they compute in ways unknown here are refused") {
  const auto refusal = [](const std::string& entry) {
    Diagnostics problems;
    parse_adapter_config(R"({"r": 8, "lora_alpha": 16, )" + entry + "}", "a", problems);
    return problems.empty() ? "" : problems[0].message;
  };
  // As PEFT 0.21 writes them where they are not used.
  CHECK(refusal(R"("layer_replication": null, "use_qalora": false, "use_bdlora": null, "kasa_config": null,
                    "loftq_config": {}, "qalora_group_size": 16, "megatron_core": "megatron.core",
                    "init_lora_weights": true)") == "");
  CHECK(refusal(R"("init_lora_weights": "gaussian", "layers_to_transform": [0], "eva_config": {"rho": 2})") == "");
  CHECK(refusal(R"("layer_replication": [[0, 1], [0, 2]])") == "'a': it sets 'layer_replication', which is not known");
  for (const char* key : {"use_qalora", "kasa_config", "alora_invocation_tokens", "of_next_year"})
    CHECK(refusal(fmt::format(R"("{}": [1])", key)) == fmt::format("'a': it sets '{}', which is not known", key));
  for (const char* way : {"pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga"})
    CHECK(refusal(fmt::format(R"("init_lora_weights": "{}")", way)).find("may have changed the base model's weights") !=
          std::string::npos);
}

TEST_CASE("An adapter's config is read back as it was written and gives the right scale") {
  const AdapterConfig config{.base_model = "x", .rank = 16, .alpha = 32, .dropout = 0.1, .target_modules = {"q_proj"}};
  Diagnostics problems;
  const auto read = parse_adapter_config(to_json(config), "a", problems);
  REQUIRE(read);
  CHECK(read->rank == 16);
  CHECK(read->scale(read->rank) == 2.0);
  CHECK(read->target_modules == config.target_modules);
  CHECK(AdapterConfig{.rank = 16, .alpha = 32, .rank_stabilized = true}.scale(16) == 8.0);
  CHECK(adapter_name("a.b.weight", 'B') == "base_model.model.a.b.lora_B.weight");
}
