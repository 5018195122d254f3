// The content of a checkpoint, taken from the ranks' buffers: its tensors, the elements of them that this rank writes
// and, for background saves, copies in host memory.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "checkpoint/saver.h"
#include "train/runtime.h"

namespace automodel::train {

inline constexpr const char* kOptimizerStem = "optim";
/// State name of master values, which the model's files hold in rounded form.
inline constexpr const char* kMasterState = "master";
/// E.g. "model.norm.weight.exp_avg".
std::string state_name(std::string_view parameter, std::string_view state);

/// Divides the elements of a run's state among ranks, each to exactly one. Constructed once; buffers for copies are
/// reused.
class Snapshot {
 public:
  /// `stored`: type of the model's files. If it differs from that of the master values, these are saved along with the
  /// optimizer's states. If adapters are trained, only they are saved, under the PEFT library's names.
  Snapshot(Runtime& runtime, at::ScalarType stored);

  /// The model's and the optimizer's part of a checkpoint of the current state. Without `copy` the pieces point into
  /// live host memory (from other devices they are always copied). Files have at most `most_bytes`.
  std::vector<checkpoint::TensorPart> take(bool copy, std::uint64_t most_bytes);
  /// The first tensor that this rank writes with a value that is not finite, or would not be in the type of the model's
  /// files; empty if there is none. Reads everything once.
  std::string not_finite() const;
  /// Bytes that this rank writes into files.
  std::uint64_t bytes() const;

 private:
  /// A contiguous part of a parameter in a buffer, limited to what this rank writes.
  struct Share {
    const model::Weight* weight;
    std::int64_t first;   ///< index of its first element in the weight's local elements
    std::int64_t offset;  ///< in the buffer
    std::int64_t length;
    bool trained;
    bool whole;  ///< optim::needs_whole_matrix()
  };
  struct Buffer {
    std::int64_t begin = 0, end = 0;  ///< elements of the target's buffers that this rank writes
    std::vector<Share> shares = {};
    std::vector<at::Tensor> copies = {};  ///< of the values, then of each state
  };

  /// Elements of a buffer in host memory.
  struct Host {
    at::Tensor tensor;
    std::int64_t first;  ///< index of its first element in the target's buffers
  };

  bool adapters_only() const;
  bool needs_whole_matrix(const arch::Parameter& parameter) const;
  /// Adds pieces for the shares' values, or for a state if one is named; `chosen` selects shares (default: all).
  void add_pieces(checkpoint::TensorPart& part, const Buffer& buffer, const Host& host, std::string_view state,
                  const std::function<bool(const Share&)>& chosen = {}) const;
  /// The elements of `live` that this rank writes, in host memory; `live` begins with element `first` of the target's
  /// buffers.
  Host on_host(Buffer& buffer, std::size_t which, const at::Tensor& live, std::int64_t first, bool copy);
  /// The name of the share that has a value beyond `limit` in `live`, which begins with element `first` of the target's
  /// buffers; empty if there is none.
  static std::string beyond(const Buffer& buffer, const at::Tensor& live, std::int64_t first, std::string_view state,
                            double limit);

  Runtime& runtime_;
  at::ScalarType stored_, master_;
  std::vector<Buffer> buffers_;  ///< one per target of the optimizer
};

}  // namespace automodel::train
