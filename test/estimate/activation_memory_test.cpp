// Activation memory of one layer by hand, where models differ from Llama's: a plan that counts too little says "fits"
// and the run is out of memory.
#include "estimate/activation_memory.h"

#include <catch2/catch.hpp>

namespace automodel::estimate {
namespace {

/// Hidden 64, four heads of 16, two of keys and values: queries 64, keys and values 2 x 32, attention's output 64.
arch::ModelSpec dense(int ffn) {
  arch::ModelSpec spec;
  spec.layers = 1, spec.hidden = 64, spec.heads = 4, spec.kv_heads = 2, spec.head_dim = 16, spec.ffn = ffn;
  spec.vocab = 1000;
  return spec;
}

constexpr ActivationRequest kTenTokens{.tokens = 10, .sequence = 10, .bytes = 2};
constexpr int kStatistics = 4 * (2 + 4);  // float32 per token: of two norms and of four softmaxes

}  // namespace

TEST_CASE("norms of queries and keys keep these projections twice", "[plan]") {
  auto spec = dense(16);
  const auto without = layer_activations(spec, 0, kTenTokens);
  spec.head_norm = arch::HeadNorm{};
  const auto with = layer_activations(spec, 0, kTenTokens);
  const int joined = 64 + 2 * 32;
  // Residual stream 2 x 64, norms 2 x 64, projections, attention's output 64, MLP 3 x 16.
  CHECK(without.kept == 10 * ((4 * 64 + joined + 64 + 48) * 2 + kStatistics));
  CHECK(with.kept == without.kept + 10 * (64 + 32) * 2);  // not the values
  // A pass that keeps nothing: the residual stream's parts 3 x 64; in attention its input, the projections (twice with
  // norms), its output and the output projection's. The MLP of 64 + 32 + 16 + 64 needs less.
  CHECK(without.forward == 10 * (3 * 64 + 64 + joined + 64 + 64) * 2);
  CHECK(with.forward == without.forward + 10 * (64 + 32) * 2);
}

TEST_CASE("full recomputation keeps what a layer begins with, its own input too", "[plan]") {
  auto request = kTenTokens;
  request.recompute = plan::Recompute::kFull;
  auto spec = dense(16);
  CHECK(layer_activations(spec, 0, request).kept == 10 * 2 * 2 * 64);
  spec.layer_input = 8;
  CHECK(layer_activations(spec, 0, request).kept == 10 * 2 * (2 * 64 + 8));
}

TEST_CASE("the backward pass works with the gradients of both residual inputs and of the MLP or attention", "[plan]") {
  // The MLP's two inputs; attention when what the MLP kept is free, its norm's output 64 and 3 x its width: gradients
  // of attention's output 64 and, by themselves and joined, of the projections 128; on GPUs in float32 that of queries.
  const auto of = [](int ffn, bool cuda) {
    return layer_activations(dense(ffn), 0, {.tokens = 10, .sequence = 10, .bytes = 2, .cuda = cuda}).working;
  };
  CHECK(of(160, true) == 10 * 2 * (2 * 64 + 2 * 160));
  CHECK(of(16, false) == 10 * 2 * (2 * 64 + 64 + 2 * 128 - (64 + 3 * 16)));
  CHECK(of(16, true) == of(16, false) + 10 * 4 * 64);
}

TEST_CASE("context-parallel ranks add up gradients of queries, keys and values in float32", "[plan]") {
  auto request = kTenTokens;
  request.cp = 4;
  const auto alone = layer_activations(dense(16), 0, request);
  request.head_ranks = 2;  // attention's output as it is computed, and as it comes back
  CHECK(layer_activations(dense(16), 0, request).kept == alone.kept + 10 * 2 * 64);
  request.head_ranks = 1, request.key_ranks = 4;
  const auto ring = layer_activations(dense(16), 0, request);
  CHECK(ring.kept == alone.kept);
  // Queries 64 in float32, a block's gradients of all 128; keys and values 64 in float32 here, leaving and arriving,
  // and two of 16 bits on their way.
  CHECK(ring.working - alone.working == 10 * (4 * 64 + 2 * 128 + 3 * 4 * 64 + 2 * 2 * 64));
  request.gathers_keys = true;  // of four ranks
  CHECK(layer_activations(dense(16), 0, request).working - alone.working == 10 * (4 * 64 + 2 * 128 + 4 * (2 + 4) * 64));
}

TEST_CASE("inputs of frozen experts are not kept, but are there in the forward pass", "[plan]") {
  auto spec = dense(16);
  spec.moe = arch::MixtureOfExperts{};
  spec.moe_layers = {true};
  spec.moe->experts = 4, spec.moe->top_k = 2, spec.moe->ffn = 8;
  auto request = kTenTokens;
  const auto whole = layer_activations(spec, 0, request);
  request.trained.expert_up = request.trained.expert_down = false;
  const auto frozen = layer_activations(spec, 0, request);
  CHECK(whole.kept - frozen.kept == 10 * 2 * 2 * (64 + 8));
  CHECK(frozen.working >= 10 * 2 * (2 * 64 + 2 * (64 + 8)));
}

TEST_CASE("latent attention keeps its low-rank vectors", "[plan]") {
  auto spec = dense(160);
  spec.latent = arch::LatentAttention{.q_rank = 24, .kv_rank = 12, .nope_dim = 12, .rope_dim = 4, .v_dim = 8};
  // Queries 4 x 16, as many keys, values 4 x 8; attention's output 4 x 8; low rank 24 and 2 x 12 (before and after the
  // norm). Values are padded to 4 x 16, and so is attention's output before it is narrowed.
  const int joined = 2 * 64 + 32 + 32, out = 32 + 64, low_rank = 24 + 2 * 12;
  auto request = kTenTokens;
  CHECK(layer_activations(spec, 0, request).kept == 10 * ((4 * 64 + joined + out + 480 + low_rank) * 2 + kStatistics));
  spec.ffn = 16;  // so that attention needs most
  CHECK(layer_activations(spec, 0, request).forward == 10 * (3 * 64 + 64 + joined + out + 64 + low_rank) * 2);
  // Sequence parallelism divides them like the residual stream; tensor parallelism alone does not.
  request.tp = 2;
  const double apart = layer_activations(spec, 0, request).kept;
  request.sequence_parallel = true;
  CHECK(apart - layer_activations(spec, 0, request).kept == 10 * 2 * (4 * 64 + low_rank) / 2);
}

TEST_CASE("compressed attention keeps a byte for each token and entry of the sequence", "[plan]") {
  auto spec = dense(16);
  spec.compressed = arch::CompressedAttention{};
  spec.compressed->rates = {4};
  const auto of = [&](std::int64_t sequence) {
    return layer_activations(spec, 0, {.tokens = 20, .sequence = sequence, .bytes = 2});
  };
  CHECK(of(20).kept - of(10).kept == 20 * ((20 + 5) - (10 + 2)));
  CHECK(of(20).forward - of(10).forward == 20 * ((20 + 5) - (10 + 2)));
  CHECK(of(3).kept == of(2).kept);  // no window is complete: a mask is not needed
}

TEST_CASE("what an index chooses is kept as lists, its scores and masks exist for some queries at a time", "[plan]") {
  auto spec = dense(16);
  const auto of = [&](std::int64_t sequence, int cp = 1, bool cuda = false) {
    return layer_activations(spec, 0, {.tokens = sequence, .sequence = sequence, .bytes = 2, .cp = cp, .cuda = cuda});
  };
  const auto whole = of(40), half = of(20), long_one = of(40'000), on_device = of(40, 1, true);
  spec.index = arch::TokenIndex{.top_k = 24, .heads = 3, .dim = 8, .layers = {true}};
  CHECK(of(40).kept - whole.kept == 40 * 24 * 2);  // lists of 16-bit numbers
  CHECK(of(40'000).kept - long_one.kept == 40'000 * 24 * 4);
  CHECK(of(20).kept == half.kept);  // all are seen
  // Two ranks have the choices of all 40 tokens.
  CHECK(of(20, 2).kept - half.kept == 40 * 24 * 2);
  // Products and sums in float32 and two masks, of 40 queries, or of the 2^21 / 40,000 that fit at once.
  CHECK(of(40).working - whole.working == 40 * 40 * (2 * 4 + 2));
  CHECK(of(40).forward - whole.forward == 40 * 24 * 2 + 40 * 40 * (2 * 4 + 2));
  CHECK(of(40'000).working - long_one.working == 52 * 40'000 * (2 * 4 + 2));
  CHECK(of(20, 2).working - half.working == 40 * 40 * (2 * 4 + 2));
  // On a GPU, no fused kernel has masks: four heads, in the backward pass four such tensors and a copy in 16 bits.
  CHECK(of(40, 1, true).working - on_device.working == 4 * 40 * 40 * (4 * 4 + 2));
  spec.index->block = 4;
  CHECK(of(40).kept - whole.kept == 40 * (3 * 6 * 2 + 8));  // each head's blocks, and the block of each token
  spec.index->layers = {false};
  CHECK(of(40).kept == whole.kept);
  CHECK(of(40).working == whole.working);  // a layer that sees all
  spec.index->block = 0;
  CHECK(of(40).kept == whole.kept);  // an earlier layer's choice
  CHECK(of(40).working - whole.working == 40 * 40 * (2 * 4 + 2));
}

TEST_CASE("scores of attention that no fused kernel computes are part of the working memory", "[plan]") {
  auto spec = dense(16);
  const auto fused = layer_activations(spec, 0, kTenTokens);
  spec.attention_softcap = 50;
  const auto chunked = layer_activations(spec, 0, kTenTokens);
  // Four heads of ten queries and ten keys: scores and weights in float32; backward also their gradients, an
  // intermediate product, and a copy in 16 bits for the matmul.
  CHECK(chunked.forward - fused.forward == 4 * 10 * 10 * (4 + 4));
  CHECK(chunked.working - fused.working == 4 * 10 * 10 * (4 * 4 + 2) - 10 * 4 * 64);  // less the kernel's gradient
  CHECK(chunked.kept == fused.kept);
}

}  // namespace automodel::estimate
