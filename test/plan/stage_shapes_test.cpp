#include "plan/stage_shapes.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "arch/hf_config.h"
#include "golden_file.h"
#include "golden_ranks.h"

namespace automodel::plan {
namespace {

std::string text(const TensorMeta& tensor) {
  std::string out;
  for (const auto dim : tensor.shape) out += (out.empty() ? "" : "x") + std::to_string(dim);
  return out + ":" + std::string(name_of(tensor.dtype));
}

std::optional<DType> dtype(const nlohmann::json& name) {
  return name.is_null() ? std::nullopt : parse_dtype(name.get<std::string>());
}

}  // namespace

TEST_CASE("stage shapes equal those of NeMo AutoModel", "[plan][golden]") {
  int accepted = 0;
  int refused = 0;
  for (const auto& row : golden::load("plan/stage_shapes.json")) {
    const auto& in = row["in"];
    CAPTURE(in.dump());
    if (row.contains("error")) {  // sizes that the config lacks: found when the config is read
      auto config = nlohmann::json::parse(
          R"({"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 8})");
      config["hidden_size"] = in[2];
      config["vocab_size"] = in[3];
      const auto text_of_config = config.dump();
      const auto parsed = arch::parse_hf_config(text_of_config, "c");
      REQUIRE(parsed.errors.size() == 1);
      CHECK(parsed.errors[0].key == (in[2].is_null() ? "hidden_size" : "vocab_size"));
      ++refused;
      continue;
    }
    StageShapeRequest request;
    request.hidden = in[2];
    request.vocab = in[3];
    request.dtype =
        dtype(in[5]).value_or((row.contains("no_params") ? std::nullopt : dtype(in[4])).value_or(DType::kBFloat16));
    request.microbatch_size = in[6];
    request.sequence_length = in[7];
    request.return_hidden_states = in[8];
    const int stages = in[0];
    const StageShapes shapes(request, stages, stages - 1);
    CHECK(shapes.tokens() == row["tokens"].get<std::int64_t>());
    std::vector<std::string> expected;
    for (const auto& run : row["stages"])
      for (int i = 0; i < run[0].get<int>(); ++i) expected.push_back(run[1]);
    std::vector<std::string> ours;
    const std::string local = in[1];
    if (!local.empty())
      for (const int stage : golden::sequence(local))
        ours.push_back(text(shapes[stage].input) + ">" + text(shapes[stage].output));
    CHECK(ours == expected);
    ++accepted;
  }
  CHECK(accepted == 218);
  CHECK(refused == 2);
}

TEST_CASE("the output shape of a stage is the input shape of the next one", "[plan]") {
  const StageShapes shapes({64, 512, 2, 16, DType::kFloat32, false}, 4, 3);
  for (int stage = 0; stage + 1 < shapes.size(); ++stage) CHECK(shapes[stage].output == shapes[stage + 1].input);
  CHECK(shapes[0].output.bytes() == 2 * 16 * 64 * 4);
}

TEST_CASE("a new sequence length recomputes all stage shapes, the same length none", "[plan]") {
  StageShapes shapes({64, 512, 2, 16, DType::kBFloat16, false}, 3, 2);
  CHECK_FALSE(shapes.reset(16));
  CHECK(shapes.reset(24));
  CHECK(text(shapes[0].input) == "2x24:int64");
  CHECK(text(shapes[1].output) == "2x24x64:bfloat16");
  CHECK(text(shapes[2].output) == "2x24x512:bfloat16");
  CHECK(shapes.tokens() == 48);
}

}  // namespace automodel::plan
