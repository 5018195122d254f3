// The only schedule interpreter: executes this rank's row of a lowered table, whichever generator produced it and
// whatever its stages compute.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "pipeline/links.h"
#include "pipeline/stage_runner.h"
#include "schedule/action.h"
#include "schedule/placement.h"

namespace automodel::pipeline {

/// A complete table (schedule::lower) with its placement and shape.
struct Table {
  schedule::Schedule rows = {};
  schedule::Placement placement = {};
  schedule::Shape shape = {};
};

/// Called before each step of a row.
using Watch = std::function<void(const schedule::Slot& slot)>;

struct ExecuteOptions {
  /// This is the last run before the optimizer step: REDUCE_GRAD reduces only then.
  bool last_run = true;
  /// Only the first ones of the table's microbatches: what the row does with the others is left out, on every rank.
  /// Empty: all.
  std::optional<int> microbatches = {};
  /// Full backward passes send the gradient of their input before they compute weight gradients.
  bool delay_weight_gradients = false;
};

class Executor {
 public:
  /// `stages` are this rank's, in the order of placement.stages_of. `group` is the pipeline group (null: one rank).
  /// All of them must outlive this.
  Executor(Table table, int rank, comm::Communicator* group, std::vector<StageRunner*> stages);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Sets the shape of messages between stages from now on (new sequence lengths).
  void set_message(const MessageShape& shape) { links_.set_message(shape); }
  /// Watches are called in the order in which they were added.
  void add_watch(Watch watch) { watches_.push_back(std::move(watch)); }

  /// Executes this rank's row.
  void run(const ExecuteOptions& options);

  const Table& table() const { return table_; }
  /// Forward passes that this rank runs before its first backward pass.
  int in_flight() const;

 private:
  struct Run;
  void execute(const schedule::Action& action, Run& run);
  void forward(const schedule::Action& action);
  void backward(const schedule::Action& action, Run& run);
  /// Computes the weight gradients that the backward pass of `action`'s stage and microbatch deferred.
  void weight_gradients(const schedule::Action& action);
  void note_last_backward(const schedule::Action& action, Run& run);
  StageRunner& stage(schedule::Stage number);
  const schedule::Row& row() const;
  bool is_first(schedule::Stage stage) const { return stage.value == 0; }
  bool is_last(schedule::Stage stage) const { return stage.value + 1 == table_.placement.stages(); }

  Table table_;
  int rank_;
  std::vector<StageRunner*> stages_;
  Links links_;
  std::vector<Watch> watches_ = {};
};

}  // namespace automodel::pipeline
