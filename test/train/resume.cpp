// Runs that are saved and resumed, on the same mesh and on others.
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/root_folder.h"
#include "comm/loopback/loopback.h"
#include "golden_folder.h"
#include "parity/parity.h"
#include "rank_suite.h"
#include "train/checkpointing.h"
#include "train/early_stopping.h"
#include "train/saved_runs.h"
#include "train/trainer.h"

namespace {

std::mutex synced_mutex;
std::set<std::string> synced;  ///< paths, as they were then

}  // namespace

/// In the place of the C library's: notes what is flushed.
extern "C" int fsync(int file) {
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file)).native();
  const std::lock_guard lock(synced_mutex);
  synced.insert(path);
  return static_cast<int>(syscall(SYS_fsync, file));
}

namespace automodel {
namespace {

using test::near;
using test::saved_state;
using test::saved_tensors;
using test::SharedFolder;
using test::train_to;
namespace fs = std::filesystem;

struct Mesh {
  std::string distributed;  ///< keys of the section
  std::string more = {};    ///< further lines
  int local = 4;
};

constexpr int kGlobal = 8;

const std::string kSizes =
    "hidden_size: 32, intermediate_size: 48, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 67, "
    "max_position_embeddings: 32, initializer_range: 0.2, ";

/// The training method.
struct Subject {
  std::string model = kSizes + "model_type: llama, num_hidden_layers: 5, tie_word_embeddings: true";
  std::string more = {};  ///< further lines of the recipe
  std::string optimizer = "lr: 0.01, amsgrad: true";
};
const Subject kAdapters{.more = "peft: {dim: 4, alpha: 8, dropout: 0.1}\n"};
const Subject kMuon{.optimizer = "_target_: torch.optim.Muon, lr: 0.01, scalar_lr: 0.003"};
const Subject kExperts{.model = kSizes +
                                "model_type: mixtral, num_hidden_layers: 2, num_local_experts: 4, "
                                "num_experts_per_tok: 2, sliding_window: null"};
const Subject kGpt2{.model =
                        "model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, n_positions: 32, vocab_size: 67, "
                        "attn_pdrop: 0, resid_pdrop: 0, embd_pdrop: 0, initializer_range: 0.2"};

std::string recipe(const Mesh& mesh, const fs::path& root, const std::string& dtype, const Subject& subject = {},
                   bool async = false) {
  return fmt::format(
      "model: {{config: {{{}}}, torch_dtype: {}}}\n"
      "dataset: {{_target_: mock, vocab_size: 67, seq_length: 12, num_samples: 64}}\n"
      "step_scheduler: {{global_batch_size: {}, local_batch_size: {}, max_steps: 100, num_epochs: null, "
      "ckpt_every_steps: 1}}\n"
      "optimizer: {{{}}}\n"
      "lr_scheduler: {{lr_decay_style: cosine, lr_warmup_steps: 3, lr_decay_steps: 9, start_wd: 0.1, end_wd: 2, "
      "wd_incr_steps: 9, wd_incr_style: linear}}\n"
      "fault_tolerance: {{loss_spike: {{window: 5, factor: 100, action: stop}}}}\n"
      "checkpoint: {{checkpoint_dir: {}, is_async: {}}}\n"
      "distributed: {{{}}}\n{}{}",
      subject.model, dtype, kGlobal, mesh.local, subject.optimizer, root.native(), async, mesh.distributed, mesh.more,
      subject.more);
}

/// The state that a resumed run saves without training: every loaded bit, gathered again.
void save_again(comm::World& world, const std::string& text) {
  const auto loaded = test::load_recipe(text);
  const train::Setup setup(loaded, world);
  auto copies = train::prepare_saving(setup);
  auto start = train::find_start(setup, copies.get());
  train::Runtime runtime(setup.plan, world, start.weights);
  train::Trainer trainer(runtime, start.rates);
  start.restore(trainer);
  const train::EarlyStopping stopping(loaded.recipe.step_scheduler(), start.state.validations);
  train::Checkpointing checkpoints(setup, trainer, stopping, start, std::move(copies));
  checkpoints.after_step({.step = 99, .checkpoint = true, .last = true}, 0.0, std::nullopt);
}

std::vector<Mesh> meshes(int ranks) {
  std::vector<Mesh> out = {{"strategy: ddp", "", kGlobal / std::min(ranks, kGlobal)},
                           {"strategy: fsdp2", "", kGlobal / std::min(ranks, kGlobal)},
                           {"strategy: megatron_fsdp, zero_dp_strategy: 1, preserve_fp32_weights: true", "",
                            kGlobal / std::min(ranks, kGlobal)}};
  if (ranks > 1)
    out.push_back(
        {fmt::format("strategy: ddp, pp_size: {}, pipeline: {{pp_schedule: 1F1B, pp_microbatch_size: 2}}", ranks)});
  if (ranks == 2)
    out.push_back({"strategy: ddp, pp_size: 2, pipeline: {pp_schedule: ZBVZeroBubble, pp_microbatch_size: 1}",
                   "model_parallel: {virtual_pipeline_model_parallel_size: 2}\n"});
  if (ranks == 4) {
    out.push_back({"strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 1}"});
    out.push_back({"strategy: fsdp2, dp_size: 4, dp_replicate_size: 2", "", 2});
    out.push_back({"strategy: fsdp2, tp_size: 4"});  // more ranks than key-value heads
  }
  return out;
}

/// Meshes whose ranks share matmuls, sequences or experts.
std::vector<Mesh> sharing_meshes(int ranks, bool experts = false) {
  std::vector<Mesh> out = {{"strategy: fsdp2, tp_size: 2"},
                           {"strategy: ddp, tp_size: 2", "model_parallel: {sequence_parallel: true}\n"},
                           {"strategy: fsdp2, cp_size: 2"}};
  if (ranks == 4) {
    out.push_back({"strategy: fsdp2, tp_size: 2, cp_size: 2, sequence_parallel: true"});
    out.push_back(
        {"strategy: megatron_fsdp, zero_dp_strategy: 2, preserve_fp32_weights: true, tp_size: 2, pp_size: 2, "
         "pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 1}"});
  }
  if (!experts) return out;
  const int local = kGlobal / ranks;
  out.push_back({"strategy: fsdp2, ep_size: 2", "", local});
  out.push_back({"strategy: ddp, ep_size: 2", "", local});
  if (ranks == 4) out.push_back({"strategy: fsdp2, tp_size: 2, ep_size: 4, sequence_parallel: true"});
  return out;
}

void check_same_mesh(comm::World& world, const Mesh& mesh, const std::string& dtype, bool async,
                     const Subject& subject = {}) {
  const SharedFolder folder(world);
  const auto whole = train_to(world, recipe(mesh, folder / "whole", dtype, subject, async), 6);
  auto parts = train_to(world, recipe(mesh, folder / "parts", dtype, subject, async), 3, true);
  for (const double loss : train_to(world, recipe(mesh, folder / "parts", dtype, subject, async), 6, true))
    parts.push_back(loss);
  RANK_EQUAL(parts.size(), std::size_t{6});
  for (std::size_t i = 0; i < parts.size(); ++i) RANK_EQUAL(parts[i], whole[i]);  // the same bits
  world.control().barrier()->wait();
  if (world.rank() == 0) {
    RANK_EQUAL(saved_tensors(folder / "parts"), saved_tensors(folder / "whole"));
    // The spike rule goes on with the losses from before the restart.
    const auto losses = saved_state(folder / "whole").recent_losses;
    RANK_EQUAL(losses.size(), std::size_t{5});
    RANK_CHECK(saved_state(folder / "parts").recent_losses == losses);
  }
  world.control().barrier()->wait();
}

/// From the initial scale of 2^32 float16 skips about eighteen steps; the restarts are in the middle of that, and
/// between updates. SGD, since Adam's steps are the same for gradients of any scale.
void check_loss_scale(comm::World& world) {
  const SharedFolder folder(world);
  const Subject plain{.optimizer = "_target_: torch.optim.SGD, lr: 0.01, momentum: 0.9"};
  const auto text = [&](const char* name) {
    return recipe(meshes(world.size()).front(), folder / name, "float16", plain);
  };
  const auto whole = train_to(world, text("whole"), 30);
  std::vector<double> parts;
  for (const int end : {10, 26, 30})
    for (const double loss : train_to(world, text("parts"), end)) parts.push_back(loss);
  RANK_CHECK(parts == whole);
  world.control().barrier()->wait();
  if (world.rank() == 0) {
    const auto one = saved_state(folder / "whole"), other = saved_state(folder / "parts");
    RANK_CHECK(one.loss_scale && one.loss_scale->scale < 1 << 24 && one.loss_scale->growth_steps > 4);
    RANK_CHECK(one.optimizer_steps > 4);  // less than the finite steps: nothing would have been trained
    RANK_CHECK(other.loss_scale == one.loss_scale);
    RANK_EQUAL(other.optimizer_steps, one.optimizer_steps);
    RANK_EQUAL(saved_tensors(folder / "parts"), saved_tensors(folder / "whole"));
  }
  world.control().barrier()->wait();
}

/// What a power failure leaves is a whole checkpoint or none.
void check_flushed(comm::World& world) {
  const SharedFolder folder(world);
  if (world.rank() == 0) {  // by itself: a run also sets links in the folder
    fs::create_directories(checkpoint::partial_path(folder / "alone", "epoch_0_step_0"));
    checkpoint::commit(folder / "alone", "epoch_0_step_0");
    const std::lock_guard lock(synced_mutex);
    RANK_CHECK(synced.contains((folder / "alone").native()));
  }
  world.control().barrier()->wait();
  for (const bool async : {false, true}) {
    const auto root = folder / (async ? "background" : "foreground");
    train_to(world, recipe(meshes(world.size()).front(), root, "float32", {}, async), 1);
    world.control().barrier()->wait();
    const auto newest = checkpoint::newest_checkpoint(root);
    std::string all;
    {
      const std::lock_guard lock(synced_mutex);
      for (const auto& each : synced)
        if (each.starts_with(root.native() + "/")) all += each + "\n";
      RANK_CHECK(world.rank() != 0 || synced.contains(root.native()));
    }
    // Each rank as a process has flushed its own files.
    const auto of_ranks = world.gather_text(all);
    std::set<std::string> names;
    for (const auto& lines : of_ranks)  // none but on rank 0
      for (std::size_t at = 0, end = 0; (end = lines.find('\n', at)) != std::string::npos; at = end + 1)
        names.insert(fs::path(lines.substr(at, end - at)).lexically_relative(root).native());
    if (world.rank() == 0) {
      const auto partial = fmt::format(".{}.partial", newest.filename().native());
      for (const auto& each : fs::recursive_directory_iterator(newest)) {
        const auto name = partial + "/" + each.path().lexically_relative(newest).native();
        if (!names.contains(name)) test::rank_check_failed(__FILE__, __LINE__, "not flushed: " + name);
      }
      RANK_CHECK(names.contains(partial));
    }
    world.control().barrier()->wait();
  }
}

/// In bfloat16, meshes sum in different orders and round differently; weights are still restored bitwise.
double tolerance(const std::string& dtype) {
  return dtype == "bfloat16" ? 0.02 : 1e-6;
}

/// Every mesh resumes from a checkpoint of `from`: it saves the loaded state bitwise unchanged, and trains alike.
void check_other_meshes(comm::World& world, const Mesh& from, const std::string& dtype, const std::vector<Mesh>& others,
                        const Subject& subject = {}) {
  const SharedFolder folder(world);
  train_to(world, recipe(from, folder / "base", dtype, subject), 3);
  folder.copy("base", "goes_on");
  const auto expected = train_to(world, recipe(from, folder / "goes_on", dtype, subject), 6);
  int number = 0;
  for (const auto& to : others) {
    const auto name = fmt::format("mesh{}", ++number);
    folder.copy("base", name + "a");
    folder.copy("base", name + "b");
    save_again(world, recipe(to, folder / (name + "a"), dtype, subject));
    world.control().barrier()->wait();
    if (world.rank() == 0) RANK_EQUAL(saved_tensors(folder / (name + "a")), saved_tensors(folder / "base"));
    const auto losses = train_to(world, recipe(to, folder / (name + "b"), dtype, subject), 6);
    RANK_CHECK(near(losses, expected, tolerance(dtype)));
  }
  // And a single rank.
  folder.copy("base", "alone");
  folder.copy("base", "again");
  if (world.rank() == 0) {
    std::vector<double> losses;
    const auto outcome = comm::run_ranks(1, [&](comm::World& one) {
      const Mesh single{"strategy: ddp", "", kGlobal};
      save_again(one, recipe(single, folder / "again", dtype, subject));
      losses = train_to(one, recipe(single, folder / "alone", dtype, subject), 6);
    });
    if (!outcome.ok()) test::rank_check_failed(__FILE__, __LINE__, outcome.text);
    RANK_EQUAL(saved_tensors(folder / "again"), saved_tensors(folder / "base"));
    RANK_CHECK(near(losses, expected, tolerance(dtype)));
  }
  world.control().barrier()->wait();
}

/// Four rows per step of a folder that transformers wrote, as transformers trained it.
void check_pretrained(comm::World& world, const std::string& distributed, int local) {
  const SharedFolder folder(world);
  const std::string golden = automodel::golden_folder() + "/hf/e2e_llama_sft";
  const auto text = fmt::format(
      "model: {{pretrained_model_name_or_path: {}, torch_dtype: float32}}\n"
      "dataset: {{_target_: tokens, path: {}/rows.jsonl, pad_token_id: 2003}}\n"
      "dataloader: {{shuffle: false}}\n"
      "step_scheduler: {{global_batch_size: 4, local_batch_size: {}, max_steps: 10, num_epochs: null}}\n"
      "optimizer: {{lr: 0.001, betas: [0.9, 0.95], weight_decay: 0.1}}\n"
      "checkpoint: {{checkpoint_dir: {}}}\n"
      "distributed: {{{}}}\n",
      golden, golden, local, (folder / "run").native(), distributed);
  const auto losses = train_to(world, text, 10);
  std::ifstream file(golden + "/reference.json");
  const auto reference = nlohmann::json::parse(file)["sft"]["losses"].get<std::vector<double>>();
  RANK_EQUAL(losses.size(), reference.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (std::abs(losses[i] - reference[i]) > 1e-4)
      test::rank_check_failed(__FILE__, __LINE__,
                              fmt::format("{}: step {}: loss {} against {}", distributed, i, losses[i], reference[i]));
}

const std::vector<test::RankCase> kCases = {
    {"a folder that transformers wrote trains as transformers trains it",
     [](comm::World& w) {
       check_pretrained(w, "strategy: ddp", 4 / w.size());
       check_pretrained(w, "strategy: fsdp2", 4 / w.size());
       if (w.size() != 2) return;
       check_pretrained(w, "strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 2}", 4);
     }},
    {"a table of positions is sharded like everything else",
     [](comm::World& w) {
       const SharedFolder folder(w);
       const auto losses = [&](const std::string& strategy) {
         const Mesh mesh{"strategy: " + strategy, "", kGlobal / w.size()};
         return train_to(w, recipe(mesh, folder / strategy, "float32", kGpt2), 3);
       };
       RANK_CHECK(near(losses("fsdp2"), losses("ddp"), 1e-6));
     }},
    {"resume on the same mesh is bitwise the uninterrupted run",
     [](comm::World& w) {
       for (const auto& mesh : meshes(w.size())) check_same_mesh(w, mesh, "float32", false);
     }},
    {"a save in the background holds the bits of its step",
     [](comm::World& w) {
       for (const auto& mesh : meshes(w.size())) check_same_mesh(w, mesh, "float32", true);
     }},
    {"masters beside rounded weights come back bitwise",
     [](comm::World& w) {
       for (const auto& mesh : meshes(w.size())) check_same_mesh(w, mesh, "bfloat16", false);
     }},
    {"frozen weights are those of the checkpoint from the first step on",
     [](comm::World& w) {  // stored in bfloat16, computed in float32
       const Subject subject{.more = "freeze_config: {freeze_modules: [{glob: '*embed_tokens'}, {glob: '*mlp*'}]}\n"};
       const auto policy = ", mp_policy: {param_dtype: float32, reduce_dtype: float32, output_dtype: float32}";
       for (auto mesh : meshes(w.size())) {
         if (!mesh.distributed.starts_with("strategy: fsdp2")) continue;  // only its policy can be finer than weights
         mesh.distributed += policy;
         check_same_mesh(w, mesh, "bfloat16", false, subject);
       }
     }},
    {"the loss scale of float16 comes back with its counts", check_loss_scale},
    {"files are flushed before the folder has its name, and the folder after it", check_flushed},
    {"any mesh goes on from any other's checkpoint",
     [](comm::World& w) {
       // On two ranks from each to each. On four each mesh is read twice, by others each time: a checkpoint holds whole
       // tensors by name, so what the one who reads makes of it does not depend on who wrote.
       const auto all = meshes(w.size());
       for (std::size_t from = 0; from < all.size(); ++from)
         check_other_meshes(
             w, all[from], "float32",
             w.size() <= 2 ? all : std::vector{all[(from + 1) % all.size()], all[(from + 3) % all.size()]});
     }},
    {"a checkpoint of one rank is read by several, with their masters",
     [](comm::World& w) { check_other_meshes(w, meshes(w.size()).front(), "bfloat16", meshes(w.size())); }},
    {"ranks that share products or sequences save and resume",
     [](comm::World& w) {
       const auto all = sharing_meshes(w.size());
       for (std::size_t from = 0; from < all.size(); ++from) {
         check_same_mesh(w, all[from], "float32", false);
         check_other_meshes(w, all[from], "float32", {all[(from + 1) % all.size()], all[(from + 2) % all.size()]});
       }
       check_other_meshes(w, meshes(w.size())[1], "float32", all);  // from and to meshes with nothing in common
       check_other_meshes(w, all[0], "float32", meshes(w.size()));
       check_other_meshes(w, all[1], "bfloat16", all);
     },
     2},
    {"ranks that share experts save and resume",
     [](comm::World& w) {
       const auto all = sharing_meshes(w.size(), true);
       for (std::size_t from = 0; from < all.size(); ++from)
         if (all[from].distributed.find("ep_size") != std::string::npos) {
           check_same_mesh(w, all[from], "float32", false, kExperts);
           check_other_meshes(w, all[from], "float32", {all[(from + 1) % all.size()], all[(from + 4) % all.size()]},
                              kExperts);
         }
       check_other_meshes(w, {"strategy: ddp", "", kGlobal / w.size()}, "float32", all, kExperts);
     },
     2},
    {"the momentum of matrices and the moments of the rest resume bitwise, and on any mesh",
     [](comm::World& w) {
       auto all = meshes(w.size());
       if (w.size() > 1) all.push_back(sharing_meshes(w.size())[0]);
       for (const bool async : {false, true}) check_same_mesh(w, all[1], "float32", async, kMuon);
       check_same_mesh(w, all.back(), "bfloat16", false, kMuon);
       // In float64: float32 sums in another order may round to other bfloat16 numbers.
       check_other_meshes(w, all[1], "float64", all, kMuon);
     }},
    {"adapters resume bitwise, and on any mesh",
     [](comm::World& w) {
       auto all = meshes(w.size());
       if (w.size() > 1)
         for (auto& mesh : sharing_meshes(w.size())) all.push_back(std::move(mesh));
       for (const auto& mesh : all) check_same_mesh(w, mesh, "float32", false, kAdapters);
       for (const auto& mesh : {all[1], all.back()}) check_other_meshes(w, mesh, "float32", all, kAdapters);
       check_same_mesh(w, all[1], "bfloat16", true, kAdapters);
       check_other_meshes(w, all[1], "bfloat16", all, kAdapters);
     }},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
