#include "config/recipe.h"

#include <map>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "config/node.h"
#include "config/objective.h"
#include "config/recipe_change.h"
#include "config/reference.h"
#include "config/rewritten.h"

namespace automodel::config {
namespace {

const Environment kNoEnvironment = [](const std::string&) { return std::nullopt; };

LoadedRecipe read(const std::string& text, std::vector<std::string> words = {}) {
  Diagnostics problems;
  const auto overrides = parse_overrides(words, problems);
  REQUIRE(problems.empty());
  return read_recipe(text, "r.yaml", overrides, kNoEnvironment);
}

/// "line:column id key" of every problem, in order.
std::vector<std::string> shown(const LoadedRecipe& loaded) {
  std::vector<std::string> out;
  for (const auto& d : loaded.problems)
    out.push_back(std::to_string(d.where.line) + ":" + std::to_string(d.where.column) + " " + std::string(d.id) + " " +
                  d.key);
  return out;
}

const std::string kModel = "model: {config: {model_type: llama}}\n";

}  // namespace

TEST_CASE("collate functions for pictures say how long rows are", "[config]") {
  const std::string module = "nemo_automodel.components.datasets.vlm.collate_fns.";
  const auto with = [&](const std::string& loader, const std::string& keys = "") {
    return read(kModel + "dataset: {_target_: medpix" + keys + "}\nvalidation_dataset: {_target_: rdr}\n" + loader);
  };
  const auto loader = [&](const std::string& function, const std::string& arguments = "") {
    return "dataloader: {collate_fn: {_target_: " + module + function + arguments + "}}\n";
  };
  const auto whole = with(loader("default_collate_fn", ", max_length: 300, drop_overlong: false"));
  REQUIRE(whole.problems.empty());
  CHECK(whole.ignored.empty());
  CHECK(whole.unsupported.empty());
  const auto& rows = std::get<MedPixDatasetConfig>(*whole.recipe.dataset());
  CHECK(rows.seq_length() == 300);
  CHECK(rows.padding() == SamplePadding::kMaxLength);
  CHECK(rows.truncation() == SampleTruncation::kCut);
  CHECK_FALSE(std::get<RdrDatasetConfig>(*whole.recipe.validation_dataset()).seq_length());
  // What is printed can be read again.
  const auto again = read(to_json(to_dict(whole.recipe)));
  CHECK(again.problems.empty());
  CHECK(changed(whole, [](Recipe& recipe) { recipe.seed = 7; }).problems.empty());

  CHECK(shown(with(loader("default_collate_fn", ", max_length: 300"), ", seq_length: 200")) ==
        std::vector<std::string>{"4:108 size-conflict dataloader.collate_fn.max_length"});
  CHECK(shown(with(loader("default_collate_fn", ", max_length: 0"))) ==
        std::vector<std::string>{"4:120 bad-value dataloader.collate_fn.max_length"});
  CHECK(shown(with(loader("default_collate_fn", ", max_len: 1"))) ==
        std::vector<std::string>{"4:108 unknown-key dataloader.collate_fn.max_len"});
  CHECK(shown(with(loader("qwen2_5_collate_fn", ", max_length: 1"))) ==
        std::vector<std::string>{"4:108 unknown-key dataloader.collate_fn.max_length"});
  CHECK(
      shown(read(kModel + "dataset: {_target_: text, paths: a}\n" + loader("default_collate_fn", ", max_length: 9"))) ==
      std::vector<std::string>{"3:108 bad-value dataloader.collate_fn.max_length"});

  // Others can be planned.
  const auto drops = with(loader("default_collate_fn", ", max_length: 300, drop_overlong: true"));
  CHECK(drops.problems.empty());
  REQUIRE(drops.unsupported.size() == 1);
  CHECK(drops.unsupported[0].key == "dataloader.collate_fn.drop_overlong");
  const auto other = with("validation_dataloader: {collate_fn: " + module + "kimi_vl_collate_fn}\n");
  CHECK(other.problems.empty());
  REQUIRE(other.unsupported.size() == 1);
  CHECK(other.unsupported[0].key == "validation_dataloader.collate_fn");
  const auto longer = with(loader("kimi_vl_collate_fn", ", max_length: 500, more: 1"));
  CHECK(longer.problems.empty());
  CHECK(longer.unsupported.size() == 1);
  CHECK(std::get<MedPixDatasetConfig>(*longer.recipe.dataset()).seq_length() == 500);
  CHECK(with("dataloader: {collate_fn: " + module + "llava_onevision_collate_fn}\n").unsupported.empty());

  // Answers that begin with a text.
  const auto prefixed = with(loader("gemma4_prefix_collate_fn", ", max_length: 500"));
  CHECK(prefixed.problems.empty());
  CHECK(prefixed.unsupported.empty());
  const auto& answers = std::get<MedPixDatasetConfig>(*prefixed.recipe.dataset());
  CHECK(answers.answer_prefix() == "<|channel>thought\n<channel|>");
  CHECK(answers.seq_length() == 500);
  CHECK(std::get<RdrDatasetConfig>(*prefixed.recipe.validation_dataset()).answer_prefix().empty());
  CHECK(read(to_json(to_dict(prefixed.recipe))).problems.empty());
  CHECK(shown(with(loader("gemma4_prefix_collate_fn"), ", answer_prefix: a")) ==
        std::vector<std::string>{"4:14 bad-value dataloader.collate_fn"});
  CHECK(shown(read(kModel + "dataset: {_target_: text, paths: a}\n" + loader("gemma4_prefix_collate_fn"))) ==
        std::vector<std::string>{"3:14 bad-value dataloader.collate_fn"});
  // The same by a hook of packs.
  const std::string hook = "post_tokenize_hook_fn: " + module + "gemma4_inject_thinking_prefix}\n";
  const auto packed = with("packed_sequence: {packed_sequence_size: 64, " + hook);
  CHECK(packed.problems.empty());
  CHECK(packed.unsupported.empty());
  CHECK(std::get<MedPixDatasetConfig>(*packed.recipe.dataset()).answer_prefix() == "<|channel>thought\n<channel|>");
  CHECK(read(to_json(to_dict(packed.recipe))).problems.empty());
  const auto loose = with("packed_sequence: {" + hook);
  CHECK(std::get<MedPixDatasetConfig>(*loose.recipe.dataset()).answer_prefix().empty());
  CHECK(shown(with("packed_sequence: {packed_sequence_size: 64, " + hook, ", answer_prefix: a")) ==
        std::vector<std::string>{"4:45 bad-value packed_sequence.post_tokenize_hook_fn"});
  const auto unknown = with("packed_sequence: {packed_sequence_size: 64, post_tokenize_hook_fn: a.b}\n");
  REQUIRE(unknown.unsupported.size() == 1);
  CHECK(unknown.unsupported[0].key == "packed_sequence.post_tokenize_hook_fn");
  const auto text = with("dataloader: {collate_fn: {_target_: some.function, pad: 8}}\n");
  CHECK(text.problems.empty());
  REQUIRE(text.ignored.size() == 1);
  CHECK(text.ignored[0].key == "dataloader.collate_fn");
}

TEST_CASE("all problems in a recipe are reported together, in file order, with line and column", "[config]") {
  const auto loaded = read(
      "seed: lots\n"
      "modle: {}\n"
      "distributed:\n"
      "  pp_sise: 2\n"
      "  tp_size: two\n"
      "  pipeline:\n"
      "    pp_microbatch_size: 0\n"
      "    pp_shedule: GPipe\n"
      "step_scheduler: [1]\n"
      "optimizer:\n"
      "  _target_: torch.optim.AdamW\n"
      "  lrr: 1\n"
      "dataset:\n"
      "  _target_: txt\n"
      "  paths: a\n");
  CHECK(shown(loaded) ==
        std::vector<std::string>{"1:1 missing-key model", "1:7 bad-type seed", "2:1 unknown-key modle",
                                 "4:3 unknown-key distributed.pp_sise", "5:12 bad-type distributed.tp_size",
                                 "7:25 bad-value distributed.pipeline.pp_microbatch_size",
                                 "8:5 unknown-key distributed.pipeline.pp_shedule", "9:17 bad-type step_scheduler",
                                 "12:3 unknown-key optimizer.lrr", "14:13 bad-value dataset._target_"});
  CHECK(loaded.problems[2].help == "did you mean 'model'?");
  CHECK(loaded.problems[6].help == "did you mean 'pp_schedule'?");
  CHECK(loaded.problems[9].help == "did you mean 'text'?");
}

TEST_CASE("keys of a text_config act, have no effect that is said, or are refused with the nearest one", "[config]") {
  const auto with = [](const std::string& keys) {
    return read("model: {pretrained_model_name_or_path: a, text_config: {" + keys + "}}\n");
  };
  const auto loaded = with(
      "num_hidden_layers: 2, rope_parameters: {rope_theta: 5.0}, use_cache: false, "
      "output_hidden_states: true, mtp_num_hidden_layers: 1, cp_full_attn_backend: ffpa");
  REQUIRE(loaded.problems.empty());
  const auto& text = *loaded.recipe.model()->text_config();
  CHECK(to_json(text.overrides()) ==
        R"({"num_hidden_layers":2,"rope_parameters":{"rope_theta":5.0},"mtp_num_hidden_layers":1})");
  std::vector<std::string> ignored;
  for (const auto& each : loaded.ignored) ignored.push_back(each.key);
  CHECK(ignored == std::vector<std::string>{"model.text_config.use_cache", "model.text_config.output_hidden_states",
                                            "model.text_config.cp_full_attn_backend"});
  const auto again = read(to_json(to_dict(loaded.recipe)));
  CHECK(again.problems.empty());
  CHECK(to_dict(again.recipe) == to_dict(loaded.recipe));
  const auto wrong = with("num_hiden_layers: 2");
  CHECK(shown(wrong) == std::vector<std::string>{"1:57 unknown-key model.text_config.num_hiden_layers"});
  CHECK(wrong.problems[0].help == "did you mean 'num_hidden_layers'?");
  const auto inside = [](const std::string& keys) {
    return read(
        "model: {config: {_target_: transformers.AutoConfig.from_pretrained, pretrained_model_name_or_path: a, " +
        keys + "}}\n");
  };
  const auto nested = inside("use_cache: false, text_config: {use_cache: false, hidden_size: 8}");
  REQUIRE(nested.problems.empty());
  CHECK(to_json(nested.recipe.model()->config()->overrides) == R"({"text_config":{"hidden_size":8}})");
  REQUIRE(nested.ignored.size() == 2);
  CHECK(nested.ignored[0].key == "model.config.use_cache");
  CHECK(nested.ignored[1].key == "model.config.text_config.use_cache");
  CHECK(inside("text_config: {hiden_size: 8}").problems[0].key == "model.config.text_config.hiden_size");
  const auto specific = read(
      "model: {config: {_target_: transformers.Qwen3VLConfig.from_pretrained, pretrained_model_name_or_path: a,\n"
      "  vision_config: {depth: 3}, text_config: {use_cache: false, hidden_size: 8, any_key: 1}}}\n");
  REQUIRE(specific.problems.empty());
  CHECK(to_json(specific.recipe.model()->config()->overrides) ==
        R"({"vision_config":{"depth":3},"text_config":{"hidden_size":8,"any_key":1}})");
  REQUIRE(specific.ignored.size() == 1);
  CHECK(specific.ignored[0].key == "model.config.text_config.use_cache");
  CHECK(read("model: {pretrained_model_name_or_path: a, hidden_sise: 3}\n").problems[0].help ==
        "did you mean 'hidden_size'?");
}

TEST_CASE("mistyped keys are found at every depth, in lists and in strategy-specific sections", "[config]") {
  CHECK(shown(read(kModel + "optimizer:\n  param_group_overrides:\n    - {pattern: a, lr_mul: 2}\n")) ==
        std::vector<std::string>{"4:20 unknown-key optimizer.param_group_overrides.0.lr_mul"});
  CHECK(shown(read(kModel + "distributed:\n  mp_policy: {param_dtyp: bf16}\n")) ==
        std::vector<std::string>{"3:15 unknown-key distributed.mp_policy.param_dtyp"});
  CHECK(shown(read(kModel + "distributed:\n  strategy: ddp\n  reshard_after_forward: true\n")) ==
        std::vector<std::string>{"4:3 unknown-key distributed.reshard_after_forward"});
  CHECK(read(kModel + "distributed:\n  strategy: ddp\n  reshard_after_forward: true\n").problems[0].help ==
        "it belongs to strategy: fsdp2");
}

TEST_CASE("layers of every stage are read in their order", "[config]") {
  const auto loaded = read(kModel + "distributed: {pp_size: 2, pipeline: {layers_per_stage: [3, 5]}}\n");
  REQUIRE(loaded.problems.empty());
  CHECK(loaded.recipe.distributed->pipeline()->layers_per_stage().counts == std::vector<int>{3, 5});
}

TEST_CASE("nesterov needs momentum without dampening", "[config]") {
  const auto sgd = [](const std::string& keys) {
    return shown(read(kModel + "optimizer: {_target_: sgd, nesterov: true" + keys + "}\n"));
  };
  CHECK(sgd(", momentum: 0.9").empty());
  CHECK(sgd("").size() == 1);
  CHECK(sgd(", momentum: 0.9, dampening: 0.1").size() == 1);
}

TEST_CASE("duplicate keys, several documents and broken YAML are refused with line and column", "[config]") {
  CHECK(shown(read(kModel + "seed: 1\nseed: 2\n")) == std::vector<std::string>{"3:1 duplicate-key seed"});
  CHECK(shown(read("a: [1, 2\nb: 3\n"))[0].find("yaml-syntax") != std::string::npos);
  CHECK(shown(read(kModel + "---\nseed: 1\n"))[0] == "2:1 yaml-syntax ");
  CHECK(shown(read("seed: 1\nrun: \xc3\xa9t\xe9\n"))[0] == "2:9 yaml-syntax ");  // Latin-1
  CHECK(shown(read(std::string("seed: 1\0\n", 9)))[0] == "1:8 yaml-syntax ");
  CHECK(shown(read(""))[0] == "1:1 missing-key ");
}

TEST_CASE("overrides win over the file and are typed, and mistyped keys in them are errors", "[config]") {
  const auto loaded = read(kModel + "distributed: {tp_size: 2}\n",
                           {"--distributed.tp_size", "4", "seed=7", "--distributed.pipeline.pp_schedule=GPipe",
                            "--distributed.pp_size=2", "--clip_grad_norm=null"});
  REQUIRE(loaded.problems.empty());
  CHECK(loaded.recipe.distributed->tp_size() == 4);
  CHECK(loaded.seed() == 7);
  CHECK(loaded.recipe.distributed->pipeline()->pp_schedule() == "GPipe");
  CHECK_FALSE(loaded.recipe.clip_grad_norm());
  CHECK(loaded.origins.find("distributed.tp_size")->where.file == "command line (--distributed.tp_size 4)");

  const auto wrong = read(kModel, {"--distributed.tp_sise=4"});
  REQUIRE(wrong.problems.size() == 1);
  CHECK(wrong.problems[0].id == "unknown-key");
  CHECK(wrong.problems[0].where.file == "command line (--distributed.tp_sise=4)");
  CHECK(read(kModel, {"--seed.x=1"}).problems[0].id == "bad-type");
}

TEST_CASE("known keys that have no effect are listed with the reason", "[config]") {
  const auto loaded = read(kModel + "ci: {recipe_owner: x}\ncompile: {enabled: true}\nwandb: {project: p}\n");
  REQUIRE(loaded.problems.empty());
  REQUIRE(loaded.ignored.size() == 3);
  CHECK(loaded.ignored[0].key == "ci");
  CHECK_FALSE(loaded.ignored[0].reason.empty());
}

TEST_CASE("older spellings of a key set the same field, and conflicting values are refused", "[config]") {
  const auto loaded = read(kModel + "dataset: {_target_: mock, seq_len: 64}\n");
  REQUIRE(loaded.problems.empty());
  CHECK(std::get<MockDatasetConfig>(*loaded.recipe.dataset()).seq_length() == 64);
  CHECK(shown(read(kModel + "dataset: {_target_: mock, seq_length: 1, seq_len: 64}\n")) ==
        std::vector<std::string>{"2:42 duplicate-key dataset.seq_length"});
}

TEST_CASE("a gradient bucket size of zero is refused", "[config]") {
  CHECK(shown(read(kModel + "distributed: {strategy: ddp, bucket_cap_mb: 0}\n")) ==
        std::vector<std::string>{"2:30 bad-value distributed.bucket_cap_mb"});
  CHECK(read(kModel + "distributed: {strategy: ddp, bucket_cap_mb: 0.5}\n").problems.empty());
}

TEST_CASE("two spellings of a key may be given together only if they agree", "[config]") {
  CHECK(read(kModel + "dataset: {_target_: mock, seq_length: 64, seq_len: 64}\n").problems.empty());
  const auto loaded = read(kModel + "distributed: {strategy: nvfsdp, zero_dp_strategy: 2}\n",
                           {"--distributed.data_parallel_sharding_strategy", "optim"});
  REQUIRE(loaded.problems.size() == 1);
  CHECK(loaded.problems[0].id == "duplicate-key");
  CHECK(loaded.problems[0].where.file == "command line (--distributed.data_parallel_sharding_strategy optim)");
}

TEST_CASE("nvFSDP's options are accepted as other spellings of Megatron-FSDP's", "[config]") {
  const auto megatron = [](const std::string& options) {
    const auto loaded = read(kModel + "distributed: {strategy: nvfsdp, " + options + "}\n");
    INFO(options << to_text(loaded.problems));
    REQUIRE(loaded.problems.empty());
    return std::get<MegatronFSDPConfig>(loaded.recipe.distributed->strategy());
  };
  // Sharding levels by name and by number, in both keys.
  const std::vector<std::pair<std::string, int>> levels = {
      {"no_shard", 0},     {"optim", 1},  {"optim_grads", 2}, {"optim_grads_params", 3},
      {"grads_params", 3}, {"params", 3}, {"Optim_Grads", 2}};
  for (const auto& [name, level] : levels) {
    CHECK(megatron("data_parallel_sharding_strategy: " + name).zero_dp_strategy() == level);
    CHECK(megatron("zero_dp_strategy: " + name).zero_dp_strategy() == level);
    CHECK(megatron("data_parallel_sharding_strategy: " + std::to_string(level)).zero_dp_strategy() == level);
  }
  CHECK(megatron("overlap_grad_reduce: true").zero_dp_strategy() == 3);
  // Every option of nvfsdp_strategy_parallelize, set to the opposite of its default.
  const auto all = megatron(
      "nvfsdp_unit_modules: [LlamaDecoderLayer], init_nvfsdp_with_meta_device: true, grad_reduce_in_fp32: true, "
      "preserve_fp32_weights: true, overlap_grad_reduce: false, overlap_param_gather: false, check_for_nan_in_grad: "
      "false, "
      "average_in_collective: true, disable_bucketing: true, calculate_per_token_loss: true, "
      "keep_fp8_transpose_cache_when_using_custom_fsdp: true, nccl_ub: true, fsdp_double_buffer: true, "
      "tp_shard_plan: {lm_head: colwise}");
  CHECK(all.megatron_fsdp_unit_modules() == std::vector<std::string>{"LlamaDecoderLayer"});
  CHECK(all.init_fsdp_with_meta_device());
  CHECK(all.keep_fp8_transpose_cache());
  CHECK(all.grad_reduce_in_fp32());
  CHECK_FALSE(all.check_for_nan_in_grad());
  CHECK(all.tp_plan().find("lm_head") != nullptr);
  // Mistakes are reported with line and column.
  const auto wrong = [](const std::string& options) {
    return shown(read(kModel + "distributed:\n  strategy: megatron_fsdp\n" + options));
  };
  CHECK(wrong("  zero_dp_strategy: 3\n  data_parallel_sharding_strategy: optim\n") ==
        std::vector<std::string>{"5:3 duplicate-key distributed.zero_dp_strategy"});
  CHECK(wrong("  data_parallel_sharding_strategy: optim\n  zero_dp_strategy: 3\n") ==
        std::vector<std::string>{"5:3 duplicate-key distributed.zero_dp_strategy"});
  CHECK(wrong("  data_parallel_sharding_strategy: optim_grads_params\n  zero_dp_strategy: 3\n").empty());
  CHECK(wrong("  nvfsdp_unit_modules: [A]\n  megatron_fsdp_unit_modules: [B]\n") ==
        std::vector<std::string>{"5:3 duplicate-key distributed.megatron_fsdp_unit_modules"});
  CHECK(wrong("  data_parallel_sharding_strategy: optim_params\n") ==
        std::vector<std::string>{"4:36 bad-value distributed.zero_dp_strategy"});
  CHECK(wrong("  data_parallel_sharding_strategy: 4\n")[0].find("bad-value distributed.zero_dp_strategy") !=
        std::string::npos);
  CHECK(wrong("  zero_dp_strategy: [1]\n")[0] == "4:21 bad-type distributed.zero_dp_strategy");
  const auto elsewhere = read(kModel + "distributed:\n  strategy: fsdp2\n  data_parallel_sharding_strategy: optim\n");
  REQUIRE(elsewhere.problems.size() == 1);
  CHECK(elsewhere.problems[0].help == "it belongs to strategy: megatron_fsdp");
}

TEST_CASE("named validation sets, anchors and merge keys are read", "[config]") {
  const auto loaded = read(kModel +
                           "x: &d {_target_: mock, seq_len: 8}\nvalidation_dataset_small: "
                           "*d\nvalidation_dataset_big:\n  <<: *d\n  seq_len: 16\n");
  INFO(to_text(loaded.problems));
  REQUIRE(loaded.problems.size() == 1);  // x itself is not a key
  CHECK(loaded.recipe.validation_datasets->size() == 2);
  CHECK(std::get<MockDatasetConfig>(loaded.recipe.validation_datasets().at("big")).seq_length() == 16);
}

TEST_CASE("environment references are replaced, and the text as written is kept for display", "[config]") {
  const auto loaded = read_recipe(
      kModel + "seed: ${S,5}\ncheckpoint: {checkpoint_dir: $D/x}\n", "r.yaml", {},
      [](const std::string& name) { return name == "D" ? std::optional<std::string>("/data") : std::nullopt; });
  REQUIRE(loaded.problems.empty());
  CHECK(loaded.seed() == 5);
  CHECK(loaded.recipe.checkpoint->checkpoint_dir() == "/data/x");
  CHECK(to_json(shown_values(loaded)).find("\"checkpoint_dir\":\"$D/x\"") != std::string::npos);
}

TEST_CASE("what an ignored section refers to is not looked up", "[config]") {
  const auto loaded = read_recipe(kModel + "skypilot: {hf_token: '${HF_TOKEN}'}\nwandb: {key: $KEY}\n", "r.yaml", {},
                                  [](const std::string& name) -> std::optional<std::string> {
                                    FAIL("looked up " << name);
                                    return std::nullopt;
                                  });
  INFO(to_text(loaded.problems));
  CHECK(loaded.problems.empty());
  CHECK(loaded.ignored.size() == 2);
  const auto other = read_recipe(kModel + "checkpoint: {checkpoint_dir: $KEY}\n", "r.yaml", {},
                                 [](const std::string&) { return std::nullopt; });
  REQUIRE_FALSE(other.problems.empty());
  CHECK(other.problems[0].id == "environment");
}

TEST_CASE("keys of NeMo AutoModel's convergence recipes that have no effect are listed", "[config]") {
  const auto loaded = read(kModel +
                           "autocast: {enabled: true}\noptimizer: {_target_: flashoptim.FlashAdamW, "
                           "compress_state_dict: false}\n");
  INFO(to_text(loaded.problems));
  CHECK(loaded.problems.empty());
  std::vector<std::string> keys;
  for (const auto& each : loaded.ignored) keys.push_back(each.key);
  CHECK(std::ranges::find(keys, "autocast") != keys.end());
  CHECK(std::ranges::find(keys, "optimizer.compress_state_dict") != keys.end());
}

TEST_CASE("the top-level seed is used, and rng.seed is listed as having no effect", "[config]") {
  CHECK(read(kModel + "seed: 1\nrng: {seed: 2}\n").seed() == 1);
  const auto loaded = read(kModel + "rng: {seed: 2}\n");
  CHECK(loaded.seed() == 42);
  REQUIRE(loaded.ignored.size() == 1);
  CHECK(loaded.ignored[0].key == "rng.seed");
}

TEST_CASE("a classifier is named by the recipe's class, by the model's, or by both", "[config]") {
  const std::string labels = "num_labels: 3, pretrained_model_name_or_path: x";
  const std::vector<std::string> texts = {
      "recipe: TrainFinetuneRecipeForSequenceClassification\nmodel: {" + labels + "}\n",
      "recipe: {_target_: nemo_automodel.recipes.llm.train_seq_cls.TrainFinetuneRecipeForSequenceClassification}\n"
      "model: {" +
          labels + "}\n",
      "model: {_target_: nemo_automodel.NeMoAutoModelForSequenceClassification.from_pretrained, " + labels + "}\n",
      "model: {_target_: nemo_automodel._transformers.NeMoAutoModelForSequenceClassification.from_pretrained, " +
          labels + "}\n",
      "recipe: TrainFinetuneRecipeForSequenceClassification\n"
      "model: {_target_: transformers.AutoModelForSequenceClassification.from_config, num_labels: 3, config: "
      "{}}\n"};
  for (const auto& text : texts) {
    INFO(text);
    const auto loaded = read(text);
    INFO(to_text(loaded.problems));
    CHECK(loaded.problems.empty());
    CHECK(objective_of(loaded.recipe) == Objective::kClassification);
    CHECK(classes_of(loaded.recipe) == 3);
  }
  CHECK(objective_of(read(kModel).recipe) == Objective::kNextToken);
  CHECK(classes_of(read(kModel).recipe) == 0);
}

TEST_CASE("what a classifier lacks or cannot have is said with its place", "[config]") {
  const auto only = [](const std::string& text) {
    const auto loaded = read(text);
    INFO(text << to_text(loaded.problems));
    REQUIRE(loaded.problems.size() == 1);
    CHECK_FALSE(loaded.problems[0].help.empty());
    CHECK(loaded.problems[0].where.line > 0);
    return std::string(loaded.problems[0].id.name()) + " " + loaded.problems[0].key;
  };
  const std::string classifier = "recipe: TrainFinetuneRecipeForSequenceClassification\n";
  const std::string model = "model: {pretrained_model_name_or_path: x, num_labels: 2}\n";
  CHECK(only(classifier + "model: {pretrained_model_name_or_path: x}\n") == "missing-key model.num_labels");
  CHECK(only(classifier + "model: {pretrained_model_name_or_path: x, num_labels: 1}\n") ==
        "bad-value model.num_labels");
  CHECK(only(classifier + "model: {_target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained, "
                          "pretrained_model_name_or_path: x, num_labels: 2}\n") == "bad-value model._target_");
  CHECK(only("recipe: TrainFinetuneRecipeForNextTokenPrediction\nmodel: {_target_: "
             "nemo_automodel.NeMoAutoModelForSequenceClassification.from_pretrained, pretrained_model_name_or_path: x, "
             "num_labels: 2}\n") == "bad-value recipe");
  CHECK(only("model: {pretrained_model_name_or_path: x, num_labels: 2}\n") == "bad-value model.num_labels");
  CHECK(only(classifier + model + "peft: {}\n") == "unsupported-option peft");
  CHECK(only(classifier + model + "generation: {prompts: [a]}\n") == "bad-value generation");
  CHECK(only(classifier + model + "dataset: {_target_: text, path: a}\n") == "bad-value dataset._target_");
  CHECK(only(classifier + model + "validation_dataset_b: {_target_: text, path: a}\n") ==
        "bad-value validation_dataset_b._target_");
  for (const std::string kind : {"tokens, path: a", "jsonl, path: a", "mock"})
    CHECK(read(classifier + model + "dataset: {_target_: " + kind + "}\n").problems.empty());
}

TEST_CASE("a student has a teacher, a ratio and a temperature", "[config]") {
  const std::string recipe = "recipe: KnowledgeDistillationRecipeForNextTokenPrediction\n";
  const std::string teacher = "teacher_model: {pretrained_model_name_or_path: y}\n";
  const auto good = read(recipe + kModel + teacher +
                         "kd_ratio: 1\nkd_loss_fn: {_target_: nemo_automodel.components.loss.kd_loss.KDLoss, "
                         "temperature: 2, ignore_index: -100, fp32_upcast: true}\n");
  INFO(to_text(good.problems));
  CHECK(good.problems.empty());
  CHECK(objective_of(good.recipe) == Objective::kDistillation);
  CHECK(good.recipe.kd_ratio() == 1);
  CHECK(objective_of(read(kModel + teacher).recipe) == Objective::kDistillation);

  const auto only = [&](const std::string& text) {
    const auto loaded = read(text);
    INFO(text << to_text(loaded.problems));
    REQUIRE(loaded.problems.size() == 1);
    CHECK_FALSE(loaded.problems[0].help.empty());
    CHECK(loaded.problems[0].where.line > 0);
    return std::string(loaded.problems[0].id.name()) + " " + loaded.problems[0].key;
  };
  CHECK(only(recipe + kModel) == "missing-key teacher_model");
  CHECK(only(recipe + kModel + "teacher_model: {}\n") == "missing-key teacher_model");
  CHECK(only(recipe + kModel + teacher + "kd_ratio: 1.5\n") == "bad-value kd_ratio");
  CHECK(only(recipe + kModel + teacher + "kd_ratio: -0.1\n") == "bad-value kd_ratio");
  CHECK(only(recipe + kModel + teacher + "kd_loss_fn: {temperature: 0}\n") == "bad-value kd_loss_fn.temperature");
  CHECK(only(recipe + kModel + teacher + "kd_loss_fn: {temperature: -1}\n") == "bad-value kd_loss_fn.temperature");
  CHECK(only(recipe + kModel + teacher + "kd_loss_fn: {ignore_index: 0}\n") == "bad-value kd_loss_fn.ignore_index");
  CHECK(only("recipe: TrainFinetuneRecipeForNextTokenPrediction\n" + kModel + teacher) == "bad-value recipe");
  CHECK(only(recipe + kModel +
             "teacher_model: {pretrained_model_name_or_path: y, quantization_config: {load_in_4bit: true}}\n") ==
        "unsupported-option teacher_model.quantization_config");
  CHECK(only(recipe + kModel + "teacher_model: {pretrained_model_name_or_path: y, num_labels: 2}\n") ==
        "bad-value teacher_model.num_labels");
  CHECK(only("recipe: TrainFinetuneRecipeForSequenceClassification\nmodel: {pretrained_model_name_or_path: x, "
             "num_labels: 2}\n" +
             teacher) == "bad-value teacher_model");
  // What would be passed over without a teacher, and what can only be planned with one.
  const auto idle = read(kModel + "kd_ratio: 0.2\n");
  REQUIRE(idle.warnings.size() == 1);
  CHECK(idle.warnings[0].id == "no-effect");
  CHECK(idle.warnings[0].key == "kd_ratio");
  for (const std::string key :
       {"separate_meshes: true", "offload_teacher_model: true", "teacher_distributed: {tp_size: 2}"})
    CHECK(read(recipe + kModel + teacher + key + "\n").unsupported.size() == 1);
}

TEST_CASE("recipes of unsupported classes are refused with a single error that says what they are", "[config]") {
  for (const auto& [name, what] : std::map<std::string, std::string>{
           {"PretrainRecipeForVLM", "vision-language"},
           {"DiffusionLMSFTRecipe", "diffusion"},
           {"TrainBiEncoderRecipe", "retrieval"},
           {"TrainEagle3Recipe", "draft models"},
           {"{_target_: nemo_automodel.recipes.multimodal.train.TrainMultimodal}", "several kinds"}}) {
    INFO(name);
    const auto loaded = read("recipe: " + name + "\nnonsense: 1\n");
    REQUIRE(loaded.problems.size() == 1);
    CHECK(loaded.problems[0].id == "other-recipe");
    CHECK(loaded.problems[0].key == "recipe");
    CHECK(loaded.problems[0].where.line == 1);
    CHECK(loaded.problems[0].message.find(what) != std::string::npos);
  }
  const auto flow = read(kModel + "flow_matching: {adapter_type: simple}\nfsdp: {}\n");
  REQUIRE(flow.problems.size() == 1);
  CHECK(flow.problems[0].id == "other-recipe");
  CHECK(flow.problems[0].key == "flow_matching");
  CHECK(flow.problems[0].message.find("diffusion") != std::string::npos);
  const auto other = read(
      "recipe: BenchmarkingRecipeForNextTokenPrediction\nmodel: {_target_: "
      "nemo_automodel.components.models.gemma4_drafter.composite.Gemma4WithDrafter.from_pretrained}\n");
  REQUIRE(other.problems.size() == 1);
  CHECK(other.problems[0].id == "other-recipe");
  CHECK(other.problems[0].key == "model._target_");
  const auto loss = read(kModel +
                         "loss_fn: {_target_: "
                         "nemo_automodel.components.models.nemotron_parse.nemotron_parse_loss.NemotronParseLoss}\n");
  REQUIRE(loss.problems.size() == 1);
  CHECK(loss.problems[0].id == "other-recipe");
  CHECK(loss.problems[0].key == "loss_fn._target_");
  CHECK(loss.problems[0].message.find("encoder-decoder of documents") != std::string::npos);
  for (const std::string name :
       {"TrainFinetuneRecipeForNextTokenPrediction", "BenchmarkingRecipeForNextTokenPrediction", "null",
        "FinetuneRecipeForVLM", "{_target_: nemo_automodel.recipes.vlm.finetune.FinetuneRecipeForVLM}",
        "{_target_: nemo_automodel.recipes.vlm.kd.KnowledgeDistillationRecipeForVLM}\nteacher_model: {config: a}",
        "{_target_: nemo_automodel.recipes.llm.train_ft.Train}", "[1]"})
    CHECK(read("recipe: " + name + "\n" + kModel).problems.empty());
  const auto unknown = read("recipe: Foo\nnonsense: 1\n");
  REQUIRE(unknown.problems.size() == 1);
  CHECK(unknown.problems[0].message == "'Foo' is not a recipe class of NeMo AutoModel for language models");
  // Also if the command line names it.
  const std::vector<std::string> words = {"--recipe", "TrainBiEncoderRecipe"};
  Diagnostics problems;
  const auto given = read_recipe(kModel, "r.yaml", parse_overrides(words, problems), {});
  REQUIRE(given.problems.size() == 1);
  CHECK(given.problems[0].message.find("retrieval") != std::string::npos);
}

TEST_CASE("a dumped recipe reads back to the same recipe", "[config]") {
  auto loaded = read(kModel +
                     "distributed: {pp_size: 2, pipeline: {layers_per_stage: auto}}\noptimizer: {lr: 3e-4, betas: "
                     "[0.9, 0.95]}\ndataset: {_target_: text, paths: [a, 'b c']}\n");
  REQUIRE(loaded.problems.empty());
  const auto first = to_dict(loaded.recipe);
  const auto again = read(to_yaml(first));
  INFO(to_yaml(first) << to_text(again.problems));
  REQUIRE(again.problems.empty());
  CHECK(to_dict(again.recipe) == first);
}

TEST_CASE("the recipe schema is valid JSON and contains the recipe's keys", "[config]") {
  const auto schema = nlohmann::json::parse(recipe_schema());
  CHECK(schema["properties"]["distributed"]["properties"].contains("pp_size"));
  CHECK(schema["properties"]["distributed"]["properties"].contains("zero_dp_strategy"));
  CHECK(schema["additionalProperties"] == false);
  CHECK(recipe_keys().size() > 200);
}

TEST_CASE("an adapter's target modules are a name or a list of names, given by only one key", "[config][peft]") {
  const auto peft = [](const std::string& keys) { return read(kModel + "peft: {" + keys + "}\n"); };
  const auto patterns = [&](const std::string& keys) {
    const auto loaded = peft(keys);
    REQUIRE(loaded.problems.empty());
    return loaded.recipe.peft()->target_modules->patterns;
  };
  CHECK(patterns("target_modules: '*_proj'") == std::vector<std::string>{"*_proj"});
  CHECK(patterns("target_modules: [q_proj, v_proj]") == std::vector<std::string>{"q_proj", "v_proj"});
  CHECK(patterns("target_modules: null, _target_: nemo_automodel.components._peft.lora.PeftConfig").empty());
  CHECK(shown(peft("target_modules: {a: b}")) == std::vector<std::string>{"2:24 bad-type peft.target_modules"});
  CHECK(shown(peft("target_modules: [1]")) == std::vector<std::string>{"2:25 bad-type peft.target_modules"});
  CHECK(shown(peft("target_modules: a, exclude_modules: b")) ==
        std::vector<std::string>{"2:27 bad-value peft.exclude_modules"});
  CHECK(shown(peft("match_all_linear: true, exclude_modules: b")) ==
        std::vector<std::string>{"2:8 bad-value peft.match_all_linear"});
  CHECK(shown(peft("dim: 0")) == std::vector<std::string>{"2:13 bad-value peft.dim"});
  CHECK(shown(peft("dropout: 1.0")) == std::vector<std::string>{"2:17 bad-value peft.dropout"});
  CHECK(shown(peft("lora_dtype: int64")) == std::vector<std::string>{"2:20 bad-type peft.lora_dtype"});
  CHECK(shown(peft("rank: 4")) == std::vector<std::string>{"2:8 unknown-key peft.rank"});
  CHECK_FALSE(read(kModel + "peft: null\n").recipe.peft());
}

TEST_CASE("a quote or bracket that is not closed is reported where it opens", "[config]") {
  const auto syntax = [](const std::string& text) {
    const auto loaded = read(text);
    REQUIRE(loaded.problems.size() == 1);
    const auto& d = loaded.problems[0];
    return std::to_string(d.where.line) + ":" + std::to_string(d.where.column) + " " + d.message + "; " + d.help;
  };
  const std::string tail = "lr_scheduler:\n  lr_decay_style: cosine\ndistributed:\n  strategy: ddp";
  for (const std::string quote : {"\"", "'"}) {
    const auto expected = "3:19 the quote that opens here is not closed; write " + quote + " where the value ends";
    const std::string text = kModel + "checkpoint:\n  checkpoint_dir: " + quote + "runs/exp1\n" + tail;
    CHECK(syntax(text) == expected);
    CHECK(syntax(text + "\n") == expected);
    CHECK(syntax(text + "\n\n") == expected);
    CHECK(syntax("\xef\xbb\xbf" + text + "\n") == expected);
  }
  CHECK(syntax(kModel + "checkpoint:\n  checkpoint_dir: &d !!str \"runs\n") ==
        "3:28 the quote that opens here is not closed; write \" where the value ends");
  // The next quote closes it: what follows that one is the parser's error.
  CHECK(syntax(kModel + "checkpoint:\n  checkpoint_dir: \"runs\n  restore_from: \"LATEST\"\n")
            .starts_with("3:19 the quote that opens here is closed on line 4 only"));
  CHECK(syntax(kModel + "dataset:\n  paths: [a, b\n  seq_length: 4\nseed: 1\n")
            .starts_with("3:10 the bracket that opens here is not closed"));
  CHECK(syntax(kModel + "optimizer: {lr: 1\nseed: 1\n").starts_with("2:12 the bracket that opens here is not closed"));
  // Quotes that are closed, also over lines and with escapes, are as good as ever.
  for (const char* text : {"\"runs\n    exp1\"", "'it''s'", "\"a\\\"b\"", "\"a\\\\\"", "it's", "a\"b", "|\n    \"text"})
    CHECK(read(kModel + "checkpoint:\n  checkpoint_dir: " + text + "\n").problems.empty());
}

TEST_CASE("a key without its colon, or without a blank behind it, is named", "[config]") {
  const auto first = [](const std::string& text) {
    const auto loaded = read(text);
    REQUIRE(!loaded.problems.empty());
    const auto& d = loaded.problems[0];
    return std::to_string(d.where.line) + ":" + std::to_string(d.where.column) + " " + d.message + "; " + d.help;
  };
  CHECK(first(kModel + "optimizer:\n  lr:5e-3\n  betas: [0.9, 0.95]\n") ==
        "3:5 no blank follows the colon of 'lr'; write 'lr: 5e-3'");
  CHECK(first(kModel + "optimizer:\n  lr:5e-3\n").ends_with("'lr: 5e-3'"));
  CHECK(first(kModel + "optimizer\n  lr: 5e-3\n") ==
        "2:10 'optimizer' has no colon; write 'optimizer:'; the lines below are indented as its keys");
  CHECK(first("text\n").starts_with("1:1 a recipe must be a mapping"));
}

TEST_CASE("only boolean keys may stand without a value on the command line", "[config]") {
  const auto text = kModel + "distributed: {strategy: fsdp2}\n";
  const auto loaded = read(text, {"--checkpoint.checkpoint_dir", "--checkpoint.enabled", "--step_scheduler.max_steps",
                                  "--distributed.activation_checkpointing"});
  CHECK(shown(loaded) == std::vector<std::string>{"0:0 bad-override checkpoint.checkpoint_dir",
                                                  "0:0 bad-override step_scheduler.max_steps"});
  CHECK(loaded.problems[0].message == "checkpoint.checkpoint_dir needs a value");
  CHECK(read(text, {"--checkpoint.checkpoint_dir", "true"}).problems.empty());
}

TEST_CASE("keys that contradict each other are refused", "[config]") {
  CHECK(shown(read("model: {_target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained, config: {model_type: "
                   "llama}}\n")) == std::vector<std::string>{"1:9 missing-key model._target_"});
  CHECK(shown(read(kModel + "checkpoint: {resume: never, restore_from: LATEST}\n")) ==
        std::vector<std::string>{"2:14 bad-value checkpoint.resume"});
  CHECK(read(kModel + "checkpoint: {restore_from: LATEST}\n").problems.empty());
}

TEST_CASE("a recipe is written with other sections, and keeps its comments", "[config]") {
  const std::string text =
      "# What this is for.\n"
      "model: {name: a}  # the model\n"
      "\n"
      "# How the ranks share the work.\n"
      "distributed:\n"
      "  # stages\n"
      "  pp_size: 2\n"
      "# Not for long.\n"
      "gone: 1\n"
      "\"seed\": 7 # fixed";
  Diagnostics problems;
  auto value = to_value(parse_yaml(text, "r.yaml", problems));
  CHECK(rewritten(text, value) == text + "\n");
  value.map()->erase(value.map()->begin() + 2);
  value.set("distributed", Value::Map{{"pp_size", Value(4)}});
  value.set("optimizer", Value::Map{{"lr", Value(0.5)}});
  CHECK(rewritten(text, value) ==
        "# What this is for.\n"
        "model: {name: a}  # the model\n"
        "\n"
        "# How the ranks share the work.\n"
        "distributed:\n"
        "  pp_size: 4\n"
        "# Not for long.\n"
        "\"seed\": 7 # fixed\n"
        "optimizer:\n"
        "  lr: 0.5\n");
  // An anchor in a section that changes: nothing of the text can stay.
  const std::string shared = "a: &x {b: 1}\nc: *x # the same\n";
  auto other = to_value(parse_yaml(shared, "r.yaml", problems));
  other.set("a", Value(2));
  CHECK(rewritten(shared, other) == to_yaml(other));
  CHECK(problems.empty());
}

}  // namespace automodel::config
