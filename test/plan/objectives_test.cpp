// Plans of classifiers and of students: the head, the teacher's memory and time, and pairs that are refused.
#include <algorithm>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planned.h"

namespace automodel::plan {
namespace {

std::string model(int hidden, int layers, int vocab = 1000, const std::string& more = "") {
  return fmt::format(
      "{{torch_dtype: float32, config: {{model_type: llama, hidden_size: {}, intermediate_size: 160, "
      "num_hidden_layers: {}, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: {}, tie_word_embeddings: "
      "true}}{}}}",
      hidden, layers, vocab, more);
}

std::string text(const std::string& models, const std::string& distributed = "strategy: ddp") {
  return fmt::format(
      "device: cpu\n{}distributed: {{{}}}\ndataset: {{_target_: mock, seq_length: 32}}\n"
      "step_scheduler: {{global_batch_size: 16, local_batch_size: 8}}\n",
      models, distributed);
}

std::string classifier(const std::string& distributed = "strategy: ddp") {
  return text(
      "recipe: TrainFinetuneRecipeForSequenceClassification\nmodel: " + model(64, 4, 1000, ", num_labels: 5") + "\n",
      distributed);
}

std::string student(const std::string& distributed = "strategy: ddp", const std::string& teacher = model(128, 8)) {
  return text("model: " + model(64, 4) + "\nteacher_model: " + teacher + "\n", distributed);
}

/// "id key" of the problems.
std::string refusal(const std::string& recipe) {
  const auto loaded = config::read_recipe(recipe, "recipe.yaml", {}, {});
  std::string out;
  for (const auto* list : {&loaded.problems})
    for (const auto& problem : *list) out += fmt::format("{} {};", problem.id.name(), problem.key);
  if (!loaded.problems.empty()) return out;
  for (const auto& problem : estimate::make_plan(loaded, {}).problems) {
    CHECK_FALSE(problem.help.empty());
    CHECK(problem.where.line > 0);
    out += fmt::format("{} {};", problem.id.name(), problem.key);
  }
  return out;
}

double weights_of(const estimate::EstimatedPlan& plan, std::size_t rank = 0) {
  return plan.estimate->memory.ranks[rank].in(estimate::Phase::kSteady).weights;
}

TEST_CASE("a classifier's head is its own, on the last stage, and counted", "[plan][objectives]") {
  const auto plan = test::planned(classifier());
  const auto& layout = plan.model->layout;
  CHECK(layout.head == "score");
  CHECK(layout.head_tied_to.empty());
  CHECK(layout.head_parameter.shape[0] == 5);
  CHECK_FALSE(layout.head_bias);
  const auto& chat = test::planned(text("model: " + model(64, 4) + "\n"));
  const auto count = [](const estimate::EstimatedPlan& each) { return each.estimate->memory.ranks.front().parameters; };
  CHECK(count(plan) - count(chat) == 5 * 64);  // the language model's head is its embedding
  CHECK(plan.pipeline->stages.back().flops < chat.pipeline->stages.back().flops);

  const auto staged = test::planned(classifier("strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1F1B}"));
  const auto has_scores = [](const StagePlan& stage) {
    return std::ranges::find(stage.part.fqns, "score") != stage.part.fqns.end();
  };
  CHECK_FALSE(has_scores(staged.pipeline->stages.front()));
  CHECK(has_scores(staged.pipeline->stages.back()));
  const auto divided = test::planned(classifier("strategy: fsdp2, tp_size: 2"));
  CHECK(divided.shares.vocabulary == 1);  // every rank computes all scores
  CHECK(divided.shares.head == 5 * 64);
  CHECK(divided.shares.embeddings == 500 * 64);
}

TEST_CASE("a classifier's config.json names its class and its classes", "[plan][objectives]") {
  const auto config = nlohmann::json::parse(test::planned(classifier()).model->config_text);
  CHECK(config["architectures"] == nlohmann::json{"LlamaForSequenceClassification"});
  CHECK(config["id2label"].size() == 5);
  CHECK(config["id2label"]["4"] == "LABEL_4");
  CHECK(config["label2id"]["LABEL_0"] == 0);
}

TEST_CASE("a teacher adds its weights to every rank and its forward passes to the step", "[plan][objectives]") {
  const auto alone = test::planned(text("model: " + model(64, 4) + "\n"));
  const auto taught = test::planned(student());
  REQUIRE(taught.teacher);
  REQUIRE(taught.teacher->frozen);
  CHECK(taught.teacher->frozen->names.contains("model.layers.7.mlp.up_proj.weight"));
  // Embedding, four attention and three MLP matrices a layer, norms; four bytes each, and nothing else.
  const double elements = 1000 * 128 + 8 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 160 * 128 + 2 * 128) + 128;
  CHECK(weights_of(taught) - weights_of(alone) == Approx(4 * elements).epsilon(1e-6));
  CHECK(taught.estimate->memory.ranks[0].in(estimate::Phase::kSteady).optimizer ==
        alone.estimate->memory.ranks[0].in(estimate::Phase::kSteady).optimizer);
  CHECK(taught.estimate->time.step > alone.estimate->time.step);
  CHECK(taught.estimate->time.flops > alone.estimate->time.flops);
  // A smaller dtype, and shards, are the teacher's own.
  auto half = model(128, 8);
  half.replace(half.find("float32"), 7, "bfloat16");
  CHECK(weights_of(test::planned(student("strategy: ddp", half))) - weights_of(alone) ==
        Approx(2 * elements).epsilon(1e-6));
  CHECK(fingerprint(taught) != fingerprint(alone));
  CHECK(fingerprint(taught) != fingerprint(test::planned(student("strategy: ddp", model(128, 7)))));
}

TEST_CASE("a teacher is split over the student's stages", "[plan][objectives]") {
  const auto plan = test::planned(student("strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1F1B}"));
  REQUIRE(plan.teacher);
  REQUIRE(plan.teacher->pipeline->stages.size() == 2);
  CHECK(plan.teacher->pipeline->stages[0].part.layers.size() == 4);
  CHECK(plan.teacher->pipeline->stages[1].part.has_head);
  CHECK(plan.pipeline->stages[1].part.has_head);
}

TEST_CASE("what does not go together as teacher and student is refused", "[plan][objectives]") {
  CHECK(refusal(student()).empty());
  CHECK(refusal(student("strategy: ddp", model(128, 8, 1001))) == "size-conflict teacher_model;");
  CHECK(refusal(student("strategy: ddp", "{pretrained_model_name_or_path: ./no/such/folder}")) ==
        "model-not-found teacher_model.pretrained_model_name_or_path;");
  CHECK(refusal(student("strategy: ddp", "{config: {model_type: llama, hidden_size: 64}}"))
            .find("missing-key teacher_model.config.num_hidden_layers;") != std::string::npos);
  CHECK(refusal(student() + "loss_fn: {_target_: nemo_automodel.components.loss.linear_ce.FusedLinearCrossEntropy, "
                            "logit_softcapping: 30}\n") == "unsupported-option loss_fn.logit_softcapping;");
  // A mesh that suits the student only: three heads over two ranks.
  const std::string odd =
      "{torch_dtype: float32, config: {model_type: llama, hidden_size: 96, intermediate_size: 160, num_hidden_layers: "
      "2, num_attention_heads: 3, num_key_value_heads: 3, vocab_size: 1000}}";
  CHECK_FALSE(refusal(student("strategy: fsdp2, tp_size: 2", odd)).empty());
}

TEST_CASE("a plan that divides a classifier's head is refused", "[plan][objectives]") {
  const auto with = [](const std::string& style) {
    return refusal(classifier("strategy: fsdp2, tp_size: 2, tp_plan: " + style));
  };
  CHECK(with("{score: colwise}") == "unsupported-option distributed.tp_plan;");
  CHECK(with("{score: colwise_rep}") == "unsupported-option distributed.tp_plan;");
  CHECK(with("{'model.layers.*.mlp.up_proj': colwise, 'model.layers.*.mlp.gate_proj': colwise, "
             "'model.layers.*.mlp.down_proj': rowwise}")
            .empty());
  CHECK(with("auto").empty());
}

TEST_CASE("settings without a use beside a teacher or classes are warned about", "[plan][objectives]") {
  const auto warned = [](const std::string& recipe, const std::string& key) {
    const auto loaded = config::read_recipe(recipe, "recipe.yaml", {}, {});
    REQUIRE(to_text(loaded.problems).empty());
    const auto plan = estimate::make_plan(loaded, {}).plan;
    REQUIRE(plan);
    return std::ranges::count_if(plan->warnings, [&](const auto& each) { return each.key == key; });
  };
  CHECK(warned(student(), "teacher_model") == 1);  // drawn from the seed
  auto rows = classifier();
  rows.replace(rows.find("mock, seq_length: 32"), 20, "jsonl, path: x.jsonl, seq_length: 32, mask_prompt: false");
  CHECK(warned(rows, "dataset.mask_prompt") == 1);
  CHECK(warned(rows, "dataset.chat_template") == 0);
}

}  // namespace
}  // namespace automodel::plan
