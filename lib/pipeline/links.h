// Messages between neighbouring stages, on different ranks or the same one: activations forward, gradients back.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "pipeline/stage_runner.h"
#include "schedule/action.h"
#include "schedule/placement.h"

namespace automodel::pipeline {

/// Shape [rows, tokens, width] of messages.
struct MessageShape {
  std::int64_t rows = 1;
  std::vector<std::int64_t> tokens = {1};  ///< by microbatch; one number: of all
  std::vector<std::int64_t> widths = {1};  ///< behind each stage but the last; one number: of all
  at::ScalarType type = at::kFloat;
  at::Device device = at::kCPU;
  std::int64_t side = 0;  ///< number of float64 values sent along with every message; 0: none
  std::int64_t tokens_of(int microbatch) const {
    return tokens.size() == 1 ? tokens[0] : tokens.at(static_cast<std::size_t>(microbatch));
  }
  std::int64_t width_behind(int stage) const {
    return widths.size() == 1 ? widths[0] : widths.at(static_cast<std::size_t>(stage));
  }
};

/// Which way a message goes: activations to the next stage, gradients to the one before.
enum class Direction : std::uint8_t { kForward, kBackward };

/// Receives are posted when the schedule says so, and waited for when their data is used. A sent tensor is kept alive
/// until its send completes. Between stages on the same rank the tensor is passed directly.
class Links {
 public:
  /// `group` is the pipeline group; null if it has one rank.
  Links(comm::Communicator* group, const schedule::Placement& placement, int microbatches);

  void set_message(MessageShape shape) { shape_ = std::move(shape); }

  /// SEND_F or SEND_B: sends what put() stored for `action`.
  void send(const schedule::Action& action);
  /// RECV_F or RECV_B: posts the receive for `action`.
  void receive(const schedule::Action& action);
  /// Stores the output of `stage` (forward) or the gradient of its input (backward) for its neighbour, which must
  /// exist.
  void put(Direction direction, schedule::Stage stage, int microbatch, Message message);
  /// The input of `stage` (forward) or the gradient of its output (backward); waits until it has arrived.
  Message take(Direction direction, schedule::Stage stage, int microbatch);
  /// Waits until all sends are complete.
  void finish();

 private:
  struct Key {
    Direction direction;
    int stage;
    int microbatch;
    auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0 in it
  };
  struct Arriving {
    Message message;
    comm::WorkPtr work;
  };
  int tag(Direction direction, int sender_stage, int microbatch) const;

  comm::Communicator* group_;
  const schedule::Placement& placement_;
  int microbatches_;
  MessageShape shape_ = {};
  std::map<Key, Message> leaving_ = {};    ///< by the stage that produced it
  std::map<Key, Arriving> arriving_ = {};  ///< by the stage that uses it
  std::vector<comm::WorkPtr> sent_ = {};
};

}  // namespace automodel::pipeline
