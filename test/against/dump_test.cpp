// What another trainer wrote is checked before anything is computed: each way to damage a dump is one problem.
#include "against/dump.h"

#include <limits>

#include <catch2/catch.hpp>

#include "against/written_dump.h"
#include "arch/families.h"
#include "arch/hf_config.h"
#include "base/error.h"

namespace automodel {
namespace {

using checkpoint::ElementType;

constexpr const char* kConfig =
    R"({"model_type": "qwen3_moe", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 4,
        "num_key_value_heads": 1, "intermediate_size": 12, "moe_intermediate_size": 6, "num_experts": 4,
        "num_experts_per_tok": 2, "vocab_size": 10, "max_position_embeddings": 16, "tie_word_embeddings": true})";

struct Dumped {
  test::TemporaryFolder folder = {};
  arch::ModelSpec spec = {};
  arch::Layout layout = {};
  test::WrittenTensors batch = {}, gradients = {};
  std::string meta = R"({"loss": 2.25})";
  Diagnostics problems = {};

  Dumped() {
    spec = *arch::parse_hf_config(kConfig, "config.json").spec;
    layout = arch::layout_of(spec);
    batch["input_ids"] = test::numbers({2, 3}, {1, 2, 3, 4, 5, 9});
    batch["labels"] = test::numbers({2, 3}, {-100, 2, 3, 4, -100, 0});
    for (const auto& parameter : arch::parameters(layout)) {
      if (!parameter.tied_to.empty() || parameter.expert >= 0) continue;
      gradients[parameter.fqn] = {{parameter.shape.begin(), parameter.shape.end()},
                                  std::vector<double>(static_cast<std::size_t>(parameter.shape.elements()), 0.5)};
    }
    for (const char* layer : {"0", "1"}) {  // transformers joins the experts
      const auto experts = std::string("model.layers.") + layer + ".mlp.experts.";
      gradients[experts + "gate_up_proj"] = {{4, 12, 8}, std::vector<double>(4 * 12 * 8, 0.25)};
      gradients[experts + "down_proj"] = {{4, 8, 6}, std::vector<double>(4 * 8 * 6, 0.125)};
    }
  }

  std::optional<against::Dump> open() {
    folder.write("batch.safetensors", test::safetensors_of(batch));
    folder.write("gradients.safetensors", test::safetensors_of(gradients));
    folder.write("meta.json", meta);
    return against::Dump::open(folder.path(), spec, layout, problems);
  }

  /// The only problem must have this id, say `words`, name `file` and have a hint.
  void refuses(const std::string& id, const std::string& words, const std::string& file) {
    const auto dump = open();
    INFO(to_text(problems));
    CHECK(!dump);
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].id == id);
    CHECK(problems[0].message.find(words) != std::string::npos);
    CHECK(problems[0].where.file.ends_with(file));
    CHECK(!problems[0].help.empty());
  }
};

TEST_CASE("a dump is opened with the gradients of joined experts, of any width of whole numbers") {
  Dumped dumped;
  dumped.batch["labels"].type = ElementType::kI32;
  dumped.batch["attention_mask"] = test::numbers({2, 3}, {1, 1, 1, 1, 1, 0}, ElementType::kBool);
  dumped.batch["position_ids"] = test::numbers({1, 3}, {0, 1, 5}, ElementType::kI16);
  dumped.gradients["model.norm.weight"].type = ElementType::kBF16;
  dumped.meta = R"({"loss": 9, "reduction": "sum", "by": "hand"})";
  const auto dump = dumped.open();
  INFO(to_text(dumped.problems));
  REQUIRE(dump);
  CHECK(dump->loss() == 9);
  CHECK(dump->reduction() == against::Reduction::kSum);
  CHECK(dump->batch().labels == std::vector<std::int64_t>{-100, 2, 3, 4, -100, 0});
  CHECK(dump->batch().positions == std::vector<std::int64_t>{0, 1, 5, 0, 1, 5});
  CHECK(dump->batch().real_tokens() == 5);
  CHECK(dump->type() == ElementType::kBF16);
  CHECK(dump->gradients().size() == dumped.gradients.size());
  for (const auto& gradient : dump->gradients()) {
    std::int64_t elements = 0;
    for (const auto& part : gradient.parts) elements += part.parameter.shape.elements();
    CHECK(elements == gradient.stored.info->elements());
    CHECK(dump->read(gradient) == dumped.gradients.at(gradient.name()).values);
  }
}

TEST_CASE("a missing file of a dump is named") {
  for (const char* name : {"batch.safetensors", "gradients.safetensors", "meta.json"}) {
    Dumped dumped;
    dumped.open();
    std::filesystem::remove(dumped.folder.path() / name);
    CHECK(!against::Dump::open(dumped.folder.path(), dumped.spec, dumped.layout, dumped.problems));
    REQUIRE(dumped.problems.size() == 1);
    CHECK(dumped.problems[0].id == "missing-file");
    CHECK(dumped.problems[0].where.file.ends_with(name));
  }
}

TEST_CASE("a batch that transformers could not take is refused") {
  const auto refuses = [](const std::string& id, const std::string& words, auto change) {
    Dumped dumped;
    change(dumped.batch);
    dumped.refuses(id, words, "batch.safetensors");
  };
  refuses("dump-batch", "no tensor 'labels'", [](auto& batch) { batch.erase("labels"); });
  refuses("dump-batch", "I64 [3, 2]", [](auto& batch) { batch["labels"].shape = {3, 2}; });
  refuses("dump-batch", "I64 [6]", [](auto& batch) { batch["input_ids"].shape = {6}; });
  refuses("dump-batch", "F32 [2, 3]", [](auto& batch) { batch["input_ids"].type = ElementType::kF32; });
  refuses("dump-batch", "'pixel_values'", [](auto& batch) { batch["pixel_values"] = batch["labels"]; });
  refuses("token-out-of-range", "an input id is 10 (row 1, token 2)",
          [](auto& batch) { batch["input_ids"].values[5] = 10; });
  refuses("token-out-of-range", "a label is -1 (row 0, token 0)", [](auto& batch) { batch["labels"].values[0] = -1; });
  refuses("dump-batch", "attention_mask is 2", [](auto& batch) {
    batch["attention_mask"] = test::numbers({2, 3}, {1, 1, 1, 2, 1, 1});
  });
  refuses("dump-batch", "label at row 0, token 1 counts", [](auto& batch) {
    batch["attention_mask"] = test::numbers({2, 3}, {0, 1, 1, 1, 1, 1});
  });
  refuses("dump-batch", "position_ids is 16", [](auto& batch) {
    batch["position_ids"] = test::numbers({2, 3}, {0, 1, 2, 0, 1, 16});
  });
  refuses("dump-batch", "no label counts",
          [](auto& batch) { batch["labels"].values = {1, -100, -100, 1, -100, -100}; });
}

TEST_CASE("a loss that cannot be compared is refused") {
  for (const auto& [meta, words] : std::vector<std::pair<std::string, std::string>>{
           {"[1]", "not a JSON object"},
           {R"({"loss": NaN})", "not a JSON object"},
           {R"({"loss": "4"})", "no number 'loss'"},
           {R"({"loss": 1, "reduction": "none"})", "'reduction' is \"none\""},
           {R"({"loss": 1, "reduction": )" + std::string(32'000, '[') + std::string(32'000, ']') + "}",
            "nests more than 100 levels"},
           {R"({"loss": 1, "by": )" + std::string(100, '[') + std::string(100, ']') + "}",
            "nests more than 100 levels"},
           {std::string(1 << 17, ' '), "bytes"}}) {
    Dumped dumped;
    dumped.meta = meta;
    dumped.refuses("dump-meta", words, "meta.json");
  }
}

TEST_CASE("gradients of another model, incomplete or sharded, are refused") {
  const auto refuses = [](const std::string& id, const std::string& words, auto change) {
    Dumped dumped;
    change(dumped.gradients);
    dumped.refuses(id, words, "gradients.safetensors");
  };
  refuses("weights-missing", "model.norm.weight", [](auto& gradients) { gradients.erase("model.norm.weight"); });
  refuses("weights-unexpected", "module.norm.weight",
          [](auto& gradients) { gradients["module.norm.weight"] = gradients["model.norm.weight"]; });
  refuses("weights-shape", "model.norm.weight is [4]", [](auto& gradients) {
    gradients["model.norm.weight"] = {{4}, {1, 1, 1, 1}};
  });
}

TEST_CASE("a tied head's own gradient is refused unless it is the embedding's") {
  Dumped same;
  same.gradients["lm_head.weight"] = same.gradients["model.embed_tokens.weight"];
  const auto dump = same.open();
  INFO(to_text(same.problems));
  REQUIRE(dump);
  CHECK(dump->gradients().size() + 1 == same.gradients.size());
  Dumped apart;
  apart.gradients["lm_head.weight"] = apart.gradients["model.embed_tokens.weight"];
  apart.gradients["lm_head.weight"].values.back() = 0;
  apart.refuses("weights-not-tied", "'lm_head.weight' has another gradient than 'model.embed_tokens.weight'",
                "gradients.safetensors");
}

TEST_CASE("a mask of ones is kept: it says that positions do not separate documents") {
  Dumped dumped;
  dumped.batch["attention_mask"] = test::numbers({2, 3}, {1, 1, 1, 1, 1, 1});
  const auto dump = dumped.open();
  REQUIRE(dump);
  CHECK(dump->batch().mask == std::vector<std::int64_t>(6, 1));
  CHECK(dump->batch().real_tokens() == 6);
}

TEST_CASE("a gradient that is not finite is named with its element") {
  Dumped dumped;
  dumped.gradients["model.norm.weight"].values[3] = std::numeric_limits<double>::quiet_NaN();
  const auto dump = dumped.open();
  REQUIRE(dump);
  for (const auto& gradient : dump->gradients()) {
    if (gradient.name() != "model.norm.weight") continue;
    try {
      dump->read(gradient);
      FAIL("it was read");
    } catch (const Error& error) {
      CHECK(error.problems()[0].id == "dump-not-finite");
      CHECK(error.problems()[0].message == "'model.norm.weight' has the value nan (element 3)");
    }
  }
}

}  // namespace
}  // namespace automodel
