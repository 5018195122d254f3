// Work of a device that was captured once and is started again as a whole: CUDA graphs. The only seam to them; the CUDA
// half of the program brings what captures (cuda_half/cuda_half.h), and tests an emulation on the CPU's tensors.
#pragma once

#include <functional>
#include <memory>

namespace automodel::ops {

/// Reads and writes the memory that it was captured with: what it shares with the rest of the program must stay where
/// it is for as long as this lives, and numbers of the host are those of the capture.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  /// Starts all of it, behind what the current stream was given, and returns at once.
  virtual void replay() = 0;
};

/// Captures on a stream of its own.
class WorkCapture {
 public:
  virtual ~WorkCapture() = default;
  /// Runs `work` on that stream, between what the current stream was given before and after: libraries make there, the
  /// first time, what they could not in a capture.
  virtual void run(const std::function<void()>& work) = 0;
  /// Calls `work` once; what it starts on the device is captured and not executed. The host must not wait in it, and
  /// what it allocates is used by replays alone.
  virtual std::unique_ptr<CapturedWork> capture(const std::function<void()>& work) = 0;
};

using MakeCapture = std::function<std::unique_ptr<WorkCapture>()>;

/// For GPUs; empty before the program's CUDA half was loaded.
const MakeCapture& loaded_capture();
/// From now on loaded_capture() is this, for the rest of the process.
void use_capture(MakeCapture make);

}  // namespace automodel::ops
