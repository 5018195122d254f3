// Context parallelism on one rank: model::ContextSeam over one or two groups.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "model/seams.h"
#include "parallel/context/ring_attention.h"

namespace automodel::parallel {

/// The two levels of context parallelism. Within a `heads` group, ranks exchange tokens for heads (all-to-all,
/// DeepSpeed Ulysses, Jacobs et al. 2023); within a `keys` group, keys and values are passed between ranks. A level
/// with one rank does nothing. Ranks of a context-parallel group are numbered with heads fastest: neighbours share a
/// heads group.
struct ContextGroups {
  std::shared_ptr<comm::Communicator> all;  ///< of both levels
  std::shared_ptr<comm::Communicator> heads;
  std::shared_ptr<comm::Communicator> keys;
  KeyTransport transport = KeyTransport::kRing;
};

class ContextParallel : public model::ContextSeam {
 public:
  explicit ContextParallel(ContextGroups groups) : groups_(std::move(groups)) {}
  int size() const override { return groups_.all->size(); }
  int rank() const override { return groups_.all->rank(); }
  at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const ops::AttentionOptions& options) override;
  at::Tensor heads_for_tokens(const at::Tensor& x) override;
  at::Tensor tokens_for_heads(const at::Tensor& x) override;
  at::Tensor with_earlier(const at::Tensor& x, std::int64_t count) override;
  at::Tensor all_tokens(const at::Tensor& x) override;
  at::Tensor own_tokens(const at::Tensor& x) override;

 private:
  ContextGroups groups_;
};

}  // namespace automodel::parallel
