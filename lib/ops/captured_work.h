// Device work that is captured once and then launched as a whole: CUDA graphs. This is the only seam to them; the
// program's CUDA half provides the implementation (cuda_half/cuda_half.h), tests an emulation on CPU tensors.
#pragma once

#include <functional>
#include <memory>

namespace automodel::ops {

/// Replays use the addresses of the capture, so memory shared with the rest of the program must stay in place during
/// this object's lifetime. Host scalars keep the values that they had during the capture.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  /// Launches all of it on the current stream and returns immediately.
  virtual void replay() = 0;
};

/// Captures on a separate stream.
class WorkCapture {
 public:
  virtual ~WorkCapture() = default;
  /// Runs `work` eagerly on that stream, ordered with the current stream's earlier and later work. A run before the
  /// capture lets libraries make allocations that are not possible during it.
  virtual void run(const std::function<void()>& work) = 0;
  /// Calls `work` once; its device work is captured, not executed. The host must not synchronise in it, and memory that
  /// it allocates is used by replays only.
  virtual std::unique_ptr<CapturedWork> capture(const std::function<void()>& work) = 0;
};

using MakeCapture = std::function<std::unique_ptr<WorkCapture>()>;

/// For GPUs; empty until the program's CUDA half is loaded.
const MakeCapture& loaded_capture();
/// Sets loaded_capture() for the rest of the process.
void use_capture(MakeCapture make);

}  // namespace automodel::ops
