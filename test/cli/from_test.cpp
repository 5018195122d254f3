// `plan --from` as a user runs it.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "program.h"

namespace automodel::test {
namespace {

constexpr const char* kAxolotl =
    "base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: 1\nlearning_rate: 2e-5\nsequence_len: 2048\n"
    "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\ndatasets: []\n";

}  // namespace

TEST_CASE("another trainer's configuration is planned, printed as a recipe and reported as JSON", "[cli]") {
  const TemporaryFolder folder;
  folder.write("ax.yaml", kAxolotl);
  const auto text = run_program(folder, "plan --from axolotl ax.yaml --world-size 8 --hardware.profile h100");
  CHECK(text.code == 0);
  CHECK_THAT(text.out, Catch::Contains("8 ranks: dp_shard 8, fsdp2"));
  const auto printed = run_program(folder, "plan --from axolotl ax.yaml --world-size 8 --print-recipe");
  CHECK(printed.code == 0);
  CHECK_THAT(printed.out, Catch::Contains("seq_length: 2048  # sequence_len"));
  folder.write("recipe.yaml", printed.out);
  const auto again = run_program(folder, "plan recipe.yaml --world-size 8 --json --hardware.profile h100");
  const auto from = nlohmann::json::parse(
      run_program(folder, "plan --from axolotl ax.yaml --world-size 8 --json --hardware.profile h100").out);
  auto plain = nlohmann::json::parse(again.out);
  CHECK(from["from"]["format"] == "axolotl");
  CHECK(from["from"]["resolved"]["dp"] == 8);
  CHECK(from["memory"] == plain["memory"]);
}

TEST_CASE("what cannot be expressed ends with 2, and the JSON still has from", "[cli]") {
  const TemporaryFolder folder;
  folder.write("ax.yaml", std::string(kAxolotl) + "tiled_mlp: true\n");
  const auto refused = run_program(folder, "plan --from axolotl ax.yaml --world-size 8 --json");
  CHECK(refused.code == 2);
  const auto json = nlohmann::json::parse(refused.out);
  CHECK(json["errors"][0]["id"] == "from-inexact");
  CHECK(json["from"]["not_expressed"][0]["key"] == "tiled_mlp: true");
  CHECK(run_program(folder, "plan --from axolotl ax.yaml --world-size 8 --allow-inexact").code == 0);
  const auto silent = run_program(folder, "plan --from axolotl ax.yaml --world-size 8 --print-recipe");
  CHECK(silent.code == 2);
  CHECK(silent.out.empty());
}

TEST_CASE("places in a converted recipe are not shown as places in the trainer's file", "[cli]") {
  const TemporaryFolder folder;
  folder.write("ax.yaml", std::string(kAxolotl) + "bf16: auto\noptimizer: adamw_torch\n");
  const auto planned = run_program(folder, "plan --from axolotl ax.yaml --world-size 8 --hardware.profile h100");
  CHECK(planned.code == 0);
  CHECK_THAT(planned.err, Catch::Contains("recipe from ax.yaml (axolotl):"));
  CHECK_THAT(planned.err, Catch::Contains("main_params_dtype: bfloat16  # axolotl's FSDP2 keeps the loaded type\n"));
}

TEST_CASE("adapters of a model with pictures are planned beside its decoder, as LLaMA-Factory makes them", "[cli]") {
  const TemporaryFolder folder;
  folder.write("lf.yaml",
               "model_name_or_path: Qwen/Qwen2.5-VL-3B-Instruct\nstage: sft\nfinetuning_type: lora\nlora_target: all\n"
               "cutoff_len: 128\nper_device_train_batch_size: 1\nnum_train_epochs: 3.0\nbf16: true\n");
  const auto planned = run_program(folder, "plan --from llamafactory lf.yaml --world-size 1 --hardware.profile h100");
  CHECK(planned.code == 0);
  CHECK(planned.err.find("no-effect") == std::string::npos);
  CHECK_THAT(planned.out, Catch::Contains("beside 252 weights (k_proj, model.language_model.layers.*.mlp.down_proj, "));
  CHECK(planned.out.find("model.visual") == std::string::npos);
  CHECK(planned.out.find("cache") == std::string::npos);  // of outputs of the tower, which is this program's
}

TEST_CASE("what of a trainer's file has no effect is said, and what may be misspelt", "[cli]") {
  const TemporaryFolder folder;
  folder.write("ax.yaml", std::string(kAxolotl) +
                              "gradient_acumulation_steps: 8\noutput_dir: out\nsomething_else: 1\nlogging_steps: 1\n");
  const auto planned = run_program(folder, "plan --from axolotl ax.yaml --world-size 8 --hardware.profile h100");
  CHECK(planned.code == 0);
  CHECK_THAT(planned.err, Catch::Contains("warning: unknown key: gradient_acumulation_steps: did you mean "
                                          "'gradient_accumulation_steps'?"));
  CHECK(planned.err.find("something_else") == std::string::npos);
  CHECK_THAT(planned.out, Catch::Contains("unknown   assumed without effect on a plan: gradient_acumulation_steps, "
                                          "something_else\n"));
  CHECK_THAT(planned.out, Catch::Contains("ignored   without effect on a plan: ") && Catch::Contains("output_dir") &&
                              Catch::Contains("logging_steps"));
}

TEST_CASE("arguments follow two dashes", "[cli]") {
  const TemporaryFolder folder;
  const auto made =
      run_program(folder,
                  "plan --from megatron - --world-size 8 --json -- --num-layers 2 --hidden-size 64 "
                  "--num-attention-heads 4 --swiglu "
                  "--normalization RMSNorm --position-embedding-type rope --disable-bias-linear --hidden-dropout 0 "
                  "--attention-dropout 0 "
                  "--micro-batch-size 1 --seq-length 64 --vocab-size 128 --bf16 --tensor-model-parallel-size 2");
  INFO(made.out + made.err);
  CHECK(made.code == 0);
  CHECK(nlohmann::json::parse(made.out)["from"]["resolved"]["tp"] == 2);
}

TEST_CASE("a recognised file without --from is named with the command to use", "[cli]") {
  const TemporaryFolder folder;
  folder.write("ax.yaml", kAxolotl);
  for (const auto* command : {"plan ax.yaml", "config ax.yaml"}) {
    const auto refused = run_program(folder, command);
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err, Catch::Contains("error[from-format]"));
    CHECK_THAT(refused.err, Catch::Contains("automodel plan --from axolotl ax.yaml --world-size N"));
  }
}

TEST_CASE("plan --diff prints what differs between two plans", "[cli]") {
  const TemporaryFolder folder;
  const std::string recipe =
      "device: cuda\nmodel: {config: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: "
      "2, "
      "num_attention_heads: 4, vocab_size: 2048}}\ndataset: {_target_: mock, seq_length: 64}\nhardware: {profile: "
      "h100}\n"
      "step_scheduler: {global_batch_size: 32, local_batch_size: 4, max_steps: 3}\n";
  folder.write("a.yaml", recipe);
  folder.write("b.yaml", recipe + "distributed: {tp_size: 2}\noptimizer: {_target_: adamw, lr: 0.5}\n");
  const auto equal = run_program(folder, "plan a.yaml --world-size 4 --diff a.yaml");
  CHECK(equal.code == 0);
  CHECK_THAT(equal.out, Catch::Contains("decisions equal") && Catch::Contains("keys      equal"));
  const auto text = run_program(folder, "plan a.yaml --world-size 4 --diff b.yaml");
  CHECK(text.code == 0);
  CHECK_THAT(text.out, Catch::Contains("distributed.tp_size") && Catch::Contains("memory of the heaviest rank"));
  const auto json = nlohmann::json::parse(run_program(folder, "plan a.yaml --world-size 4 --diff b.yaml --json").out);
  const auto decision = [&](const std::string& name) {
    for (const auto& each : json["decisions"])
      if (each["decision"] == name) return each;
    return nlohmann::json();
  };
  CHECK(decision("mesh.tp")["after"] == 2);
  CHECK(decision("mesh.tp")["time"] == true);
  CHECK(decision("settings.optimizer")["numbers"] == true);
  CHECK(decision("settings.optimizer")["memory"] == false);
  const auto plan = nlohmann::json::parse(run_program(folder, "plan b.yaml --world-size 4 --json").out);
  CHECK(json["after"]["step"].get<double>() == Approx(plan["time"]["step"].get<double>()));
  CHECK(run_program(folder, "plan a.yaml --diff missing.yaml").code == 2);
  CHECK(run_program(folder, "plan a.yaml --diff b.yaml --search").code == 2);
}

TEST_CASE("words about another trainer's configuration are checked", "[cli]") {
  const TemporaryFolder folder;
  folder.write("ax.yaml", kAxolotl);
  CHECK_THAT(run_program(folder, "plan --from axolotel ax.yaml --world-size 8").err, Catch::Contains("axolotl"));
  CHECK(run_program(folder, "plan --from axolotl ax.yaml").code == 2);
  CHECK(run_program(folder, "plan --from axolotl missing.yaml --world-size 8").code == 2);
  CHECK_THAT(run_program(folder, "plan r.yaml --print-recipe").err, Catch::Contains("--from"));
}

}  // namespace automodel::test
