// Assembles whole matrices, for optimizers that need them, from their parts on data-parallel and tensor-parallel ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "model/slice.h"

namespace automodel::optim {

/// A trained matrix [rows, columns] of a unit, or a stack [n, rows, columns] of them.
struct Matrix {
  std::string name = {};
  std::vector<std::int64_t> shape = {};  ///< of the whole tensor; of a stack divided among expert-parallel ranks,
                                         ///< the local part
  std::int64_t offset = 0;               ///< where this rank's part begins in the unit's whole buffer
  std::int64_t length = 0;               ///< elements in that part
  /// The slice that each of MatrixGroups::tensor_members holds; empty: all hold the whole tensor.
  std::vector<model::Slice> slices = {};
};

/// The ranks among which a unit is divided. A null group stands for a single rank.
struct MatrixGroups {
  std::shared_ptr<comm::Communicator> shard = {};  ///< data-parallel shards
  bool sharded = false;     ///< each rank has an equal range of the unit's buffer, in rank order; else all of it
  std::int64_t begin = 0;   ///< where this rank's range begins in the unit's buffer
  std::int64_t length = 0;  ///< elements in each rank's range
  std::shared_ptr<comm::Communicator> tensor = {};
  at::Device device = at::kCPU;          ///< device that the groups communicate tensors of, and on which matrices
                                         ///< are changed
  std::vector<int> tensor_members = {};  ///< ranks in `tensor` that hold the slices, in the order of the slices
};

/// Every matrix is assembled on one rank of its data-parallel group and, if it is sliced, of its tensor-parallel group,
/// is changed there, and is distributed again; owners are chosen to balance the work. Replicas of shards (HSDP) each
/// repeat the work. A matrix crosses the network twice, as bfloat16.
class MatrixExchange {
 public:
  MatrixExchange(std::vector<Matrix> matrices, MatrixGroups groups);

  const std::vector<Matrix>& matrices() const { return matrices_; }
  /// `buffer`: bfloat16, this rank's range of the unit. Replaces the elements of each matrix by change(matrix), which
  /// is called with a matrix [rows, columns], on one rank for each.
  void run(const at::Tensor& buffer, const std::function<at::Tensor(const at::Tensor&)>& change) const;
  /// Number of elements that change() is called with on this rank, over all matrices.
  std::int64_t own_elements() const;

 private:
  /// The elements of matrix `index` in the range of `rank`: index of the first in the matrix's part, and length (0:
  /// none).
  std::pair<std::int64_t, std::int64_t> held(std::size_t index, int rank) const;
  int shards() const { return groups_.shard ? groups_.shard->size() : 1; }
  std::vector<at::Tensor> collect(const at::Tensor& buffer) const;
  void distribute(const at::Tensor& buffer, const std::vector<at::Tensor>& parts) const;
  void change_sliced(std::vector<at::Tensor>& parts, const std::function<at::Tensor(const at::Tensor&)>& change) const;

  std::vector<Matrix> matrices_;
  MatrixGroups groups_;
  int shard_rank_ = 0;                   ///< this rank among the shards
  int tensor_rank_ = 0;                  ///< this rank among tensor_members
  std::vector<int> owners_ = {};         ///< owner of each matrix: a rank of `shard`
  std::vector<int> tensor_owners_ = {};  ///< owner of each matrix: an index into tensor_members; -1: not sliced, or
                                         ///< not owned by this shard
};

}  // namespace automodel::optim
