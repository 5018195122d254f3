#include "model/rope_table.h"

#include <cmath>
#include <vector>

#include "torch_catch.h"

namespace automodel::model {
namespace {

// Expected values were computed independently of this code, in Python, from the formulas of the papers.

arch::Rope of_kind(arch::RopeKind kind) {
  arch::Rope rope;
  rope.kind = kind;
  rope.rotary_dim = 8;
  return rope;
}

void check(const Frequencies& got, const std::vector<double>& wanted, double scaling = 1) {
  REQUIRE(got.inverse.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(got.inverse[i] == Approx(wanted[i]).epsilon(1e-6));
  CHECK(got.scaling == Approx(scaling).epsilon(1e-9));
}

TEST_CASE("default RoPE frequencies fall geometrically from 1") {
  check(frequencies(of_kind(arch::RopeKind::kDefault), 32, 80), {1, 0.1, 0.01, 0.001});
}

TEST_CASE("linear RoPE scaling divides every frequency by the factor") {
  auto rope = of_kind(arch::RopeKind::kLinear);
  rope.factor = 4;
  check(frequencies(rope, 32, 80), {0.25, 0.025, 0.0025, 0.00025});
}

TEST_CASE("dynamic RoPE scaling changes the base only for sequences longer than the model's limit") {
  auto rope = of_kind(arch::RopeKind::kDynamic);
  rope.factor = 2;
  check(frequencies(rope, 32, 20), {1, 0.1, 0.01, 0.001});
  check(frequencies(rope, 32, 80), {1, 0.06299605249474366, 0.003968502629920499, 0.00025});
}

TEST_CASE("longrope has frequency factors for short and long sequences and one scale for attention scores") {
  auto rope = of_kind(arch::RopeKind::kLongRope);
  rope.original_max_positions = 16;
  rope.factor = 4;
  rope.short_factor = {1, 1.1, 1.2, 1.3};
  rope.long_factor = {1.5, 2, 3, 4};
  check(frequencies(rope, 64, 16), {1, 0.09090909090909091, 0.008333333333333333, 0.0007692307692307692},
        1.224744871391589);
  check(frequencies(rope, 64, 17), {0.6666666666666666, 0.05, 0.0033333333333333335, 0.00025}, 1.224744871391589);
}

TEST_CASE("llama3 RoPE scaling keeps high frequencies, divides low ones and blends those between") {
  auto rope = of_kind(arch::RopeKind::kLlama3);
  rope.factor = 8;
  rope.original_max_positions = 64;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  check(frequencies(rope, 128, 80), {1, 0.013042256043820465, 0.00125, 0.000125});
}

TEST_CASE("YaRN divides low frequencies and scales the attention scores") {
  auto rope = of_kind(arch::RopeKind::kYarn);
  rope.factor = 4;
  rope.original_max_positions = 32;
  check(frequencies(rope, 128, 80), {1, 0.025, 0.0025, 0.00025}, 1.138629436111989);
  rope.mscale = rope.mscale_all_dim = 1.0;
  check(frequencies(rope, 128, 80), {1, 0.025, 0.0025, 0.00025}, 1.0);
  rope.attention_factor = 0.7;
  check(frequencies(rope, 128, 80), {1, 0.025, 0.0025, 0.00025}, 0.7);
}

TEST_CASE("a RoPE table covers the requested positions and is recomputed for a longer sequence") {
  auto rope = of_kind(arch::RopeKind::kDynamic);
  rope.factor = 2;
  RopeTable table(rope, 32, at::kDouble, at::kCPU);
  const auto near = table.angles(20);
  CHECK(near.cos.size(0) >= 20);
  CHECK(near.cos[3][1].item<double>() == Approx(std::cos(0.3)).epsilon(1e-6));
  const auto far = table.angles(80);
  CHECK(far.cos.size(0) >= 80);
  CHECK(far.sin[3][1].item<double>() == Approx(std::sin(3 * 0.06299605249474366)).epsilon(1e-6));
  CHECK(table.angles(20).cos[3][1].item<double>() == Approx(std::cos(0.3)).epsilon(1e-6));
}

}  // namespace
}  // namespace automodel::model
