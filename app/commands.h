// The table of commands, from which help, parsing and dispatch are derived.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "options.h"

namespace automodel::app {

/// Groups of options that a command accepts.
enum Takes : unsigned {
  kRecipe = 1u << 0,  ///< RECIPE and overrides
  kJson = 1u << 1,
  kWorldSize = 1u << 2,
  kPictures = 1u << 3,  ///< --actions, --timeline, --trace
  kProcesses = 1u << 4,
  kDryRun = 1u << 5,
  kShell = 1u << 6,
  kSlurm = 1u << 10,     ///< --nodes, --time, --partition, ...
  kEstimates = 1u << 7,  ///< --memory, --require-fit, --search, --apply
  kTokenizer = 1u << 8,
  kMarkdown = 1u << 9,
  kReport = 1u << 13,      ///< RUN..., -o
  kGenerate = 1u << 11,    ///< --prompt, --chat, --max-new-tokens, ...
  kRows = 1u << 14,        ///< --rows, --validation
  kDoctor = 1u << 15,      ///< --ranks, --nproc-per-node, --start-with
  kThreads = 1u << 16,     ///< --nproc-per-node, of a command whose ranks are threads
  kSchedule = 1u << 17,    ///< NAME|FILE|search, --pp-size, --microbatches, --costs, ...
  kInit = 1u << 18,        ///< pretrain|sft|lora, --model, --data, -o
  kStudio = 1u << 19,      ///< RECIPE|RUN..., --port, --no-open
  kK8s = 1u << 20,         ///< --nodes, --kind, --image, --volume, ...
  kCheckpoint = 1u << 12,  ///< ls|verify|export DIR [OUTPUT] and their options
};

struct Command {
  std::string_view name;
  std::string_view usage;
  std::string_view doc;
  unsigned takes;
  int (*run)(const Options& options);  ///< returns the exit code
};

std::span<const Command> commands();

/// The values that the recipe's own declarations list, plus names from other tables.
std::vector<launch::CompletedKey> completed_values();

// Commands implemented in their own files.
int run_train(const Options& options);
int run_plan(const Options& options);
int run_slurm(const Options& options);
int run_k8s(const Options& options);
int run_doctor(const Options& options);
int run_generate(const Options& options);
int run_report(const Options& options);
int run_studio(const Options& options);
int run_init(const Options& options);
int run_data(const Options& options);
int run_schedule(const Options& options);

}  // namespace automodel::app
