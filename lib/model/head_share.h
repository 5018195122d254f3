// A recurrent layer's heads under context parallelism. Its state is passed from token to token, so every rank computes
// whole sequences for a share of the heads, as NeMo AutoModel's and Megatron Core's MambaContextParallel do. Layers
// that are only a short convolution exchange the few tokens it looks back to instead (ContextSeam::with_earlier).
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/blocks.h"
#include "ops/parameter.h"
#include "ops/short_conv.h"

namespace automodel::model {

/// Of `count` heads or key groups of a tensor-parallel rank, those that this context-parallel rank computes. Where
/// there are more ranks than groups, several ranks compute a group, each for other heads.
class HeadShare {
 public:
  /// One share of everything if the tokens here are the whole sequence.
  HeadShare(ContextSeam& context, const Microbatch& microbatch);
  bool divided() const { return shares_ > 1; }
  std::int64_t of(std::int64_t count) const { return range(count).second; }
  std::int64_t first(std::int64_t count) const { return range(count).first; }
  /// Parts [batch, tokens here, width_i] of `count` heads or groups of adjacent channels each, all of the same type, to
  /// [batch, tokens of the sequence, sum of width_i / count * of(count)], by one all-to-all.
  at::Tensor gather(const std::vector<std::pair<at::Tensor, std::int64_t>>& parts) const;
  /// Queries [batch, tokens here, heads, width], keys and values [batch, tokens here, groups, ...] to those of the
  /// sequence and the share.
  std::array<at::Tensor, 3> gather(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const;
  /// As the seam's, for what the tokens here are of.
  at::Tensor all_tokens(const at::Tensor& x) const { return divided() ? context_.all_tokens(x) : x; }
  at::Tensor own_tokens(const at::Tensor& x) const { return divided() ? context_.own_tokens(x) : x; }
  /// x [batch, tokens of the sequence, heads of the share, width] to [batch, tokens here, heads, width].
  at::Tensor scatter(const at::Tensor& x) const { return divided() ? context_.tokens_for_heads(x) : x; }
  /// This share's rows among `rows` rows of the parameter that begin at `first` and are of `count` heads or groups.
  ops::ParameterRows rows(ops::Parameter& parameter, std::int64_t first, std::int64_t rows, std::int64_t count) const;
  /// Of all rows; those of a parameter [1, 1, rows, 1], too.
  ops::ParameterRows rows(ops::Parameter& parameter, std::int64_t count) const;
  /// A DecayGate or StepGate of `heads` heads for those of the share.
  template <class Gate>
  Gate part(Gate gate, std::int64_t heads) const {
    gate.rate = rows(*gate.rate.parameter, heads);
    gate.bias = rows(*gate.bias.parameter, heads);
    return gate;
  }
  /// A convolution's channels of the share. Its consecutive channels are sections [channels, heads or groups] of one
  /// weight, or of a weight each.
  ops::ShortConv part(ops::ShortConv conv, const std::vector<std::pair<std::int64_t, std::int64_t>>& sections) const;
  /// The same, of heads that are each an element of x [heads].
  at::Tensor heads(const at::Tensor& x) const;

 private:
  /// The first of `count` heads or groups, and how many.
  std::pair<std::int64_t, std::int64_t> range(std::int64_t count) const;

  ContextSeam& context_;
  std::int64_t shares_ = 1, share_ = 0;
};

}  // namespace automodel::model
