#include "plan/fqn_split.h"

#include <catch2/catch.hpp>

#include "golden_file.h"
#include "golden_names.h"
#include "nemo_stage_fqns.h"

namespace automodel::plan {

TEST_CASE("stages get the same module names as in NeMo AutoModel", "[plan][golden]") {
  int accepted = 0;
  int refused = 0;
  for (const auto& row : golden::load("plan/fqn_splits.json")) {
    const auto& in = row["in"];
    CAPTURE(in.dump());
    FqnSplitRequest request;
    request.stages = in["num_stages"];
    request.layers = in["num_layers"];
    request.embeddings = in.value("include_embeddings", true);
    request.head = in.value("include_lm_head", true);
    request.rotary = in.value("include_rotary_emb", true);
    request.encoders = in.value("include_multimodal_encoders", true);
    request.prefix = in.value("fqn_prefix", "model.");
    request.head_fqn = in.value("lm_head_fqn", "lm_head");
    if (in.contains("extra_module_fqns") && in["extra_module_fqns"].is_string())
      request.extra = golden::names(in["extra_module_fqns"]);
    Diagnostics problems;
    const auto split = nemo_stage_fqns(request, problems);
    if (row.contains("error")) {
      ++refused;
      CHECK_FALSE(split);
      REQUIRE(problems.size() == 1);
      CHECK(problems[0].id == (request.stages < 1 ? "bad-value" : "too-many-stages"));
      continue;
    }
    ++accepted;
    REQUIRE(split);
    StageFqns expected;
    for (const auto& stage : row["out"]) expected.push_back(golden::names(stage));
    CHECK(*split == expected);
  }
  CHECK(accepted == 270);
  CHECK(refused == 97);
}

TEST_CASE("layers are spread evenly, and earlier stages get the remainder", "[plan]") {
  for (int stages = 1; stages <= 20; ++stages)
    for (int layers = 0; layers <= 50; ++layers) {
      int next = 0;
      for (int stage = 0; stage < stages; ++stage) {
        const auto range = even_layers(stage, stages, layers);
        CHECK(range.begin == next);
        CHECK(range.size() == layers / stages + (stage < layers % stages ? 1 : 0));
        next = range.end;
      }
      CHECK(next == layers);
    }
}

TEST_CASE("too many stages are refused, and the help names the largest pp_size that fits", "[plan]") {
  Diagnostics problems;
  check_stage_count(8, 7, 2, problems);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].message == "8 pipeline stages (2 per rank) for 7 layers");
  CHECK(problems[0].help == "every stage needs a layer; use at most pp_size: 3");
  problems.clear();
  check_stage_count(6, 7, 2, problems);
  CHECK(problems.empty());
}

}  // namespace automodel::plan
