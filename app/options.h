// The parsed command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/completion.h"

namespace automodel::app {

struct Options {
  std::string recipe = {};
  std::vector<std::string> overrides = {};  ///< arguments that are not options of ours: --a.b.c value, a.b.c=value
  bool json = false;
  bool markdown = false;
  bool plan_reference = false;
  bool verbose = false;  ///< for `plan`: every detail
  bool errors = false;
  bool dry_run = false;  ///< `plan` is always dry
  std::optional<int> world_size = {};
  std::optional<int> gpus_per_node = {};
  std::optional<int> nproc_per_node = {};
  std::optional<int> max_restarts = {};  ///< overrides fault_tolerance.max_restarts
  std::optional<int> min_ranks = {};     ///< overrides fault_tolerance.min_ranks
  std::string start_with = {};           ///< command that starts the ranks
  std::string actions = {};              ///< "", "compute", "lowered"
  std::string timeline = {};             ///< file
  std::string trace = {};                ///< file
  std::string html = {};                 ///< file
  std::string memory = {};               ///< of a rank's device; sets hardware.memory
  bool no_files = false;                 ///< do not check the files that the recipe names
  bool ranks = false;                    ///< for `doctor`
  bool require_fit = false;              ///< refuse a plan that does not fit
  bool calibrate = false;                ///< measure this machine first
  bool search = false;
  bool compare_schedules = false;
  bool failures = false;
  // Another trainer's configuration, for `plan`.
  std::vector<std::string> from = {};       ///< format and file, alternately
  std::vector<std::string> arguments = {};  ///< after "--"
  std::string model = {};                   ///< of `init`, or in place of the configuration's
  std::optional<int> seq_length = {}, vocab_size = {};
  std::string accept_optimizer = {};
  bool allow_inexact = false, print_recipe = false;
  std::string diff = {};   ///< the recipe to compare with
  std::string apply = {};  ///< file to write the best recipe of a search to
  // `verify`.
  std::string against = {};              ///< folder of another trainer's dump
  std::optional<double> tolerance = {};  ///< of its relative differences
  // Slurm jobs.
  std::optional<int> nodes = {}, cpus_per_rank = {};
  int warning = 300;  ///< seconds
  std::string time = {}, partition = {}, account = {}, qos = {}, container = {}, job_name = {}, logs = {};
  std::string launcher = "srun", preamble = {}, program = {};
  std::vector<std::string> mounts = {};
  // Kubernetes jobs, besides `kind`.
  std::string space = {}, image = "automodel";
  std::vector<std::string> volumes = {};
  std::string shell = {};
  std::string folder = {};                           ///< of a tokenizer or of checkpoints
  bool special = false;                              ///< add special tokens
  bool decode = false;                               ///< ids to text
  std::int64_t rows = 3;                             ///< number of rows that `data` prints
  bool validation = false;                           ///< validation_dataset instead of dataset
  bool skip_special = false;                         ///< drop special tokens from the text
  std::vector<launch::CompletedCommand> known = {};  ///< all commands, for shell completion
  std::string action = {};                           ///< for `checkpoint`
  std::string output = {};                           ///< for `checkpoint export`: the folder to create
  std::string dtype = {};
  std::string base = {};  ///< base model of adapters
  bool merge = false;
  bool gguf = false;                      ///< for `checkpoint export`: a file for llama.cpp
  std::string dcp = {};                   ///< for `checkpoint export`: "", "torch", "titan", "nemo"
  std::string gguf_type = {};             ///< "", "f32", "f16", "bf16", "q8_0"
  std::vector<std::string> folders = {};  ///< of runs; of `studio`, recipes too
  int port = 0;                           ///< 0: a free one
  bool no_open = false;                   ///< do not start a browser
  // `schedule`.
  std::string schedule = {};  ///< name, file or "search"
  std::optional<int> pipeline_ranks = {}, microbatches = {}, stages_per_rank = {};
  std::string style = {}, costs = {}, format = "compute";
  std::optional<double> memory_limit = {};  ///< of a rank, in the unit of the costs' `activation`
  std::string kind = {};                    ///< of `init` or `k8s`
  std::string data = {};                    ///< of `init`
  // `generate`.
  std::vector<std::string> prompts = {}, images = {};
  bool chat = false;
  bool logits = false;  ///< print the logits behind each prompt
  std::string system = {}, tokenizer = {}, device = "auto";
  int max_new_tokens = 256, top_k = 0, seed = 42, pp_size = 1;
  std::optional<int> tp_size = {};
  double temperature = 0, top_p = 1;
};

}  // namespace automodel::app
