#include "plan/pipeline_layout.h"

#include <random>

#include <catch2/catch.hpp>

#include "advice.h"
#include "golden_file.h"

namespace automodel::plan {
namespace {

std::optional<int> optional_int(const nlohmann::json& object, const char* key) {
  return object.contains(key) && !object[key].is_null() ? std::optional(object[key].get<int>()) : std::nullopt;
}

/// Whether the stages hold all layers, each once and in order.
bool tiles(const PipelineLayout& layout, int layers) {
  int next = 0;
  for (const auto& stage : layout.stages) {
    if (stage.layers.begin != next || stage.layers.size() < 0) return false;
    next = stage.layers.end;
  }
  return next == layers;
}

}  // namespace

TEST_CASE("layers are placed on stages as in Megatron Core", "[plan][golden]") {
  int accepted = 0;
  int refused = 0;
  for (const auto& row : golden::load("plan/pipeline_layout.json")) {
    CAPTURE(row.dump());
    Diagnostics problems;
    if (row.contains("parse")) {
      const auto kinds = parse_layout(row["parse"].get<std::string>(), problems);
      REQUIRE(kinds.has_value() == row.contains("out"));
      if (!kinds) continue;
      std::vector<std::string> words;
      for (const auto& stage : *kinds) {
        auto& text = words.emplace_back();
        for (const LayerKind kind : stage) text += (text.empty() ? "" : " ") + std::string(name_of(kind));
      }
      CHECK(words == row["out"].get<std::vector<std::string>>());
      continue;
    }
    const auto& in = row["in"];
    PipelineLayoutRequest request;
    request.layers = in["num_layers"];
    request.pp_size = in["pipeline_model_parallel_size"];
    request.chunks = optional_int(in, "virtual_pipeline_model_parallel_size");
    request.first_rank_layers = optional_int(in, "num_layers_in_first_pipeline_stage");
    request.last_rank_layers = optional_int(in, "num_layers_in_last_pipeline_stage");
    request.account_for_embedding = in.value("account_for_embedding_in_pipeline_split", false);
    request.account_for_loss = in.value("account_for_loss_in_pipeline_split", false);
    request.mtp_layers = optional_int(in, "mtp_num_layers").value_or(0);
    bool readable = true;
    if (in.contains("pipeline_model_parallel_layout")) {
      request.layout = parse_layout(in["pipeline_model_parallel_layout"].get<std::string>(), problems);
      readable = request.layout.has_value();
    }
    const auto layout = readable ? place_layers(request, problems) : std::nullopt;
    if (request.pp_size == 1 && request.chunks == 2) {
      CHECK_FALSE(layout);  // Megatron lets both chunks hold every layer
      continue;
    }
    if (row.contains("error")) {
      CHECK_FALSE(layout);
      CHECK_FALSE(problems.empty());
      ++refused;
      continue;
    }
    ++accepted;
    INFO(to_text(problems));
    REQUIRE(layout);
    CHECK(tiles(*layout, request.layers));
    CHECK(layout->chunks == optional_int(row, "vp"));
    CHECK(layout->mtp_apart == row["mtp_standalone"].get<bool>());
    REQUIRE(layout->stages.size() == row["stages"].size());
    for (std::size_t i = 0; i < layout->stages.size(); ++i) {
      const auto& stage = layout->stages[i];
      CHECK(row["stages"][i] == nlohmann::json({stage.chunk, stage.pp_rank, stage.layers.size(), stage.layers.begin}));
    }
  }
  CHECK(accepted == 23);
  CHECK(refused == 31);
}

TEST_CASE("every value suggested for a layer placement works", "[plan][property]") {
  std::mt19937 random(3);
  int advised = 0;
  int placed = 0;
  for (int repeat = 0; repeat < 5000; ++repeat) {
    PipelineLayoutRequest request;
    request.layers = static_cast<int>(random() % 40) + 1;
    request.pp_size = static_cast<int>(random() % 8) + 1;
    if (random() % 2 == 0) request.chunks = static_cast<int>(random() % 4) + 1;
    if (random() % 2 == 0) request.first_rank_layers = static_cast<int>(random() % 10);
    if (random() % 2 == 0) request.last_rank_layers = static_cast<int>(random() % 10);
    if (!request.first_rank_layers && !request.last_rank_layers) {
      request.account_for_embedding = random() % 2 == 0;
      request.account_for_loss = random() % 2 == 0;
    }
    Diagnostics problems;
    if (const auto layout = place_layers(request, problems)) {
      CHECK(tiles(*layout, request.layers));
      CHECK(layout->stages.size() == static_cast<std::size_t>(request.pp_size * request.chunks.value_or(1)));
      ++placed;
      continue;
    }
    REQUIRE(problems.size() == 1);
    INFO(to_text(problems));
    for (const auto& advised_value : advised_values(problems[0].help)) {
      auto changed = request;
      const int value = static_cast<int>(advised_value.number());
      const auto& key = advised_value.key;
      if (key == "pipeline_model_parallel_size") changed.pp_size = value;
      if (key == "virtual_pipeline_model_parallel_size") changed.chunks = value;
      if (key == "num_layers_in_first_pipeline_stage") changed.first_rank_layers = value;
      if (key == "num_layers_in_last_pipeline_stage") changed.last_rank_layers = value;
      Diagnostics none;
      CHECK(place_layers(changed, none));
      ++advised;
    }
  }
  CHECK(advised > 3000);
  CHECK(placed > 500);
}

TEST_CASE("an unknown letter in a layout is reported with its column", "[plan]") {
  Diagnostics problems;
  CHECK_FALSE(parse_layout("E,tt|x*3L", problems));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].message == "'x' at column 6 of layout 'E,tt|x*3L'");
  problems.clear();
  CHECK_FALSE(parse_layout("(t*1000000)*1000000", problems));
  CHECK_FALSE(parse_layout("t*99999999999999999999", problems));
  CHECK(problems.size() == 2);
}

TEST_CASE("layouts are read from lists of layer names", "[plan]") {
  Diagnostics problems;
  const auto kinds = parse_layout({{"Embedding", "decoder"}, {"DECODER", "loss"}}, problems);
  CHECK(kinds == LayerKinds{{LayerKind::kEmbedding, LayerKind::kDecoder}, {LayerKind::kDecoder, LayerKind::kLoss}});
  CHECK_FALSE(parse_layout(std::vector<std::vector<std::string>>{{"decodr"}}, problems));
  CHECK(problems[0].help == "did you mean 'decoder'?");
}

TEST_CASE("all violated rules of a layout are reported at once", "[plan]") {
  const auto problems_of = [](const char* text, int layers, int pp, int mtp) {
    Diagnostics problems;
    PipelineLayoutRequest request;
    request.layers = layers;
    request.pp_size = pp;
    request.mtp_layers = mtp;
    request.layout = parse_layout(text, problems);
    REQUIRE(request.layout);
    place_layers(request, problems);
    return problems.size();
  };
  CHECK(problems_of("Et|tL", 2, 2, 0) == 0);
  CHECK(problems_of("Et|tL", 3, 2, 0) == 1);     // layers
  CHECK(problems_of("tE|Lt", 2, 2, 0) == 2);     // order of embedding and loss
  CHECK(problems_of("Et|t|L", 2, 2, 0) == 1);    // stages
  CHECK(problems_of("Et|mt|L", 2, 3, 1) == 1);   // a layer after m
  CHECK(problems_of("Et|m|t|L", 2, 2, 1) == 2);  // and m before the last chunk
  CHECK(problems_of("Ett|m|m|L", 2, 4, 2) == 1);
  CHECK(problems_of("|Ett|L", 2, 3, 0) == 1);
  PipelineLayoutRequest request;
  request.layout = LayerKinds{{LayerKind::kEmbedding, LayerKind::kDecoder, LayerKind::kLoss}};
  request.first_rank_layers = 1;
  Diagnostics problems;
  CHECK_FALSE(place_layers(request, problems));
  CHECK(problems[0].message == "a layout together with other ways to place layers");
}

TEST_CASE("a placement lists the modules of every stage, including empty stages", "[plan]") {
  Diagnostics problems;
  PipelineLayoutRequest request;
  request.layers = 3;
  request.pp_size = 4;
  request.layout = parse_layout("Et||t|tL", problems);
  const auto layout = place_layers(request, problems);
  REQUIRE(layout);
  const ModelNames names{{"model.embed_tokens"}, {}, "model.layers", 3, "model.norm", "lm_head", ""};
  CHECK(stage_fqns(names, *layout) == StageFqns{{"model.embed_tokens", "model.layers.0"},
                                                {},
                                                {"model.layers.1"},
                                                {"model.layers.2", "model.norm", "lm_head"}});
}

}  // namespace automodel::plan
