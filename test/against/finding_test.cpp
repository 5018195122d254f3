// Each kind of defect, planted in gradients of a made-up model, is found at other sizes and under the noise of other
// types than those of the recorded dumps; and what has no pattern is not given one.
#include "against/finding.h"

#include <cmath>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "against/dump.h"
#include "against/row_weights.h"
#include "base/random.h"

namespace automodel {
namespace {

using namespace against;  // NOLINT(google-build-using-namespace)
using arch::Role;
using checkpoint::ElementType;

struct Made {
  std::string name;
  Role role;
  int layer;
  std::vector<std::int64_t> shape;
};

/// Gradients of rows are independent random numbers, as large as those of layers are: which also makes row sums exact.
class Model final : public Laboratory {
 public:
  Model(int layers, std::vector<std::int64_t> row_labels, ElementType type = ElementType::kF32)
      : row_labels_(std::move(row_labels)), type_(type) {
    made_.push_back({"embed.weight", Role::kEmbedding, -1, {24, 8}});
    for (int layer = 0; layer < layers; ++layer) {
      const auto prefix = "layers." + std::to_string(layer) + ".";
      made_.push_back({prefix + "norm.weight", Role::kNorm, layer, {8}});
      made_.push_back({prefix + "attn.q.weight", Role::kAttention, layer, {16, 8}});
      made_.push_back({prefix + "attn.q.bias", Role::kAttention, layer, {16}});
      made_.push_back({prefix + "attn.o.weight", Role::kAttention, layer, {8, 16}});
      made_.push_back({prefix + "gate.weight", Role::kRouter, layer, {4, 8}});
      made_.push_back({prefix + "experts.up", Role::kExpert, layer, {4, 12, 8}});
      made_.push_back({prefix + "experts.down", Role::kExpert, layer, {4, 8, 12}});
    }
    made_.push_back({"norm.weight", Role::kNorm, -1, {8}});
    const auto rows = std::ssize(row_labels_);
    auto& out = evidence_;
    out.row_count = rows;
    out.tokens = 32;
    out.real_tokens = rows * 32;
    out.ids.assign(static_cast<std::size_t>(rows * 32), 1);
    out.batch_labels.assign(out.ids.size(), kIgnored);
    for (const auto labels : row_labels_) out.labels += labels;
    out.divisor = static_cast<double>(out.labels);
    for (std::int64_t row = 0; row < rows; ++row) {
      RowPart part{.labels = row_labels_[static_cast<std::size_t>(row)]};
      part.loss = (2.0 + 0.1 * static_cast<double>(row)) * static_cast<double>(part.labels);
      for (const auto& each : made_)
        part.gradients.push_back(noise(each, "row " + std::to_string(row), static_cast<double>(part.labels)));
      out.our_loss += part.loss / out.divisor;
      out.rows.push_back(std::move(part));
    }
    for (std::size_t i = 0; i < made_.size(); ++i) {
      Pair pair{.name = made_[i].name, .shape = made_[i].shape, .role = made_[i].role, .layer = made_[i].layer};
      pair.tied = i == 0;
      pair.ours = mixed(i, std::vector<double>(row_labels_.size(), 1));
      pair.theirs = pair.ours;
      out.pairs.push_back(std::move(pair));
      out.strides.push_back(1);
    }
    out.their_loss = out.our_loss;
    out.tolerance = tolerance_for(type, layers, 96, false);
    out.sixteen_bits = out.sixteen_bits_routed = tolerance_for(ElementType::kBF16, layers, 96, false).relative;
  }

  Evidence& evidence() { return evidence_; }
  /// Keeps only a part of the rows' gradients, as of large models.
  void sample(std::int64_t stride) {
    for (std::size_t i = 0; i < evidence_.pairs.size(); ++i) {
      evidence_.strides[i] = stride;
      for (auto& row : evidence_.rows) row.gradients[i] = sampled(row.gradients[i], stride);
    }
  }

  /// The step with weights of rows.
  Values mixed(std::size_t tensor, const std::vector<double>& weights) const {
    Values out(evidence_.rows[0].gradients[tensor].size(), 0.0);
    for (std::size_t row = 0; row < weights.size(); ++row)
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] += weights[row] * evidence_.rows[row].gradients[tensor][i] / evidence_.divisor;
    return out;
  }
  void weigh(const std::vector<double>& weights) {
    for (std::size_t i = 0; i < made_.size(); ++i) evidence_.pairs[i].theirs = mixed(i, weights);
  }
  void scale(
      double factor, const std::function<bool(const Pair&)>& which = [](const Pair&) { return true; }) {
    for (auto& pair : evidence_.pairs)
      if (which(pair))
        for (auto& value : pair.theirs) value *= factor;
  }

  /// The finding, after the rounding of the type: a few random errors of up to its roundoff.
  Finding found() {
    for (auto& pair : evidence_.pairs) {
      const RandomStream random(7, pair.name);
      for (std::size_t i = 0; i < pair.theirs.size(); ++i)
        for (std::uint64_t k = 0; k < 4; ++k)
          pair.theirs[i] *= 1 + roundoff(type_) * (2 * random.uniform(4 * i + k) - 1);
    }
    return compare(evidence_, *this).finding;
  }

  std::optional<Relabelled> with_targets(const std::vector<std::int64_t>& targets) override {
    Relabelled out{.labels = evidence_.labels / 2, .loss = 3};
    const bool twice = targets.size() > 1 && targets[0] == 3;  // ids are 1; the planted labels 1, 2, 3
    for (const auto& each : made_) out.gradients.push_back(noise(each, twice ? "twice" : "other", 1));
    return out;
  }
  Values head_part() override { return noise(made_[0], "head", 0.5); }
  Values noise(const Made& made, const std::string& stream, double size) const {
    std::int64_t elements = 1;
    for (const auto dim : made.shape) elements *= dim;
    Values out;
    const RandomStream random(1, made.name + stream);
    for (std::int64_t i = 0; i < elements; ++i)
      out.push_back(size * (2 * random.uniform(static_cast<std::uint64_t>(i)) - 1));
    return out;
  }
  const Made& made(std::size_t tensor) const { return made_[tensor]; }

 private:
  std::vector<std::int64_t> row_labels_;
  ElementType type_;
  std::vector<Made> made_;
  Evidence evidence_;
};

constexpr ElementType kTypes[] = {ElementType::kF32, ElementType::kBF16};

bool in_layer(const Pair& pair, int layer) {
  return pair.layer == layer;
}

TEST_CASE("right gradients are equal in every type") {
  for (const auto type : {ElementType::kF64, ElementType::kF32, ElementType::kF16, ElementType::kBF16}) {
    const auto found = Model(5, {3, 9, 20}, type).found();
    INFO(found.text);
    CHECK(found.id == FindingId::kEqual);
    CHECK(found.tensors.empty());
  }
}

TEST_CASE("a factor of everything is named after the count that it equals") {
  for (const auto type : kTypes)
    for (const auto& [factor, words] : std::vector<std::pair<double, std::string>>{{2, "microbatches of 4 rows"},
                                                                                   {8, "microbatches of one row"},
                                                                                   {1.0 / 16, "ranks"},
                                                                                   {100, "100 label tokens"},
                                                                                   {0.01, "divided by them twice"},
                                                                                   {65536, "loss scale"},
                                                                                   {-1, "sign"},
                                                                                   {0, "zero"}}) {
      Model model(2, {10, 20, 5, 15, 12, 8, 18, 12}, type);
      model.scale(factor);
      const auto found = model.found();
      INFO(factor << ": " << found.text);
      CHECK(found.id == FindingId::kConstantFactor);
      CHECK(found.text.find(words) != std::string::npos);
      CHECK(*found.factor == Approx(factor).epsilon(0.02));
      CHECK(found.tensors.size() == model.evidence().pairs.size());
    }
}

TEST_CASE("a factor that no single tensor shows is seen in sums") {
  for (const auto type : kTypes)
    for (const double by : {-0.9, -0.3, -0.05, 0.05, 0.3, 0.9}) {  // of the tolerance of a tensor; sums have an eighth
      const auto check = [&](FindingId id, const std::string& words, const auto& which) {
        Model model(4, {10, 20}, type);
        const double factor = 1 + by * model.evidence().tolerance.relative;
        std::size_t changed = 0;
        for (const auto& pair : model.evidence().pairs) changed += which(pair) ? 1 : 0;
        model.scale(factor, which);
        const auto found = model.found();
        INFO(by << ": " << found.text);
        if (std::abs(by) < 0.1) {
          CHECK(found.id == FindingId::kEqual);
          CHECK(found.tensors.empty());
          return;
        }
        CHECK(found.id == id);
        CHECK(found.text.find(words) != std::string::npos);
        CHECK(found.tensors.size() == changed);
        REQUIRE(found.factor);
        CHECK(*found.factor == Approx(factor).epsilon(model.evidence().tolerance.of_sums()));
      };
      check(FindingId::kConstantFactor, "every gradient is", [](const Pair&) { return true; });
      check(FindingId::kLayerFactor, "layer 2", [](const Pair& pair) { return pair.layer == 2; });
      check(FindingId::kKindOfWeight, "experts alone", [](const Pair& pair) { return pair.role == Role::kExpert; });
      check(FindingId::kKindOfWeight, "norm weights alone", [](const Pair& pair) { return pair.role == Role::kNorm; });
    }
  Model mixed(4, {10, 20}, ElementType::kBF16);  // layers and kinds at once have no simple cause, and are not equal
  mixed.scale(1.05, [](const Pair& pair) { return pair.layer == 2; });
  mixed.scale(0.95, [](const Pair& pair) { return pair.role == Role::kAttention; });
  CHECK(mixed.found().id != FindingId::kEqual);
}

TEST_CASE("the tolerance of deep models in 16 bits hides no lost gradients and no loss of another step") {
  const auto deep = tolerance_for(ElementType::kBF16, 28, 4096, true);
  CHECK(deep.relative == 0.3);
  CHECK(deep.of_loss() == 5e-3);
  for (const double factor : {0.01, 0.75, 1.25}) {
    Model model(2, {10, 20}, ElementType::kBF16);
    model.evidence().tolerance = deep;
    model.scale(factor);
    const auto found = model.found();
    INFO(found.text);
    CHECK(found.id == FindingId::kConstantFactor);
  }
  Model loss(2, {10, 20}, ElementType::kBF16);
  loss.evidence().tolerance = deep;
  loss.evidence().their_loss *= 1.006;
  CHECK(loss.found().id != FindingId::kEqual);
}

TEST_CASE("a factor that is a norm for clipping is said to be one") {
  Model model(2, {10, 20});
  model.scale(100);
  model.evidence().pairs[0].ours[0] += 0;
  for (auto& pair : model.evidence().pairs) pair.ours = pair.theirs;
  double square = 0;
  for (const auto& pair : model.evidence().pairs)
    for (const double value : pair.ours) square += value * value;
  for (auto& row : model.evidence().rows)
    for (auto& gradient : row.gradients)
      for (auto& value : gradient) value *= 100;
  model.scale(1 / std::sqrt(square));
  const auto found = model.found();
  INFO(found.text);
  CHECK(found.id == FindingId::kConstantFactor);
  CHECK(found.text.find("clipped") != std::string::npos);
}

TEST_CASE("the divisor that was taken for the label tokens is recognised with the loss") {
  for (const auto type : kTypes)
    for (const auto& [count, words] : std::vector<std::pair<std::int64_t, std::string>>{
             {96, "all tokens of the batch, "}, {93, "have a next one"}}) {
      Model model(2, {10, 20, 18}, type);
      const double factor = 48.0 / static_cast<double>(count);  // 0.5 for 96: ranks, were the loss right
      model.scale(factor);
      model.evidence().their_loss *= factor;
      const auto found = model.found();
      INFO(found.text);
      CHECK(found.id == FindingId::kDivisor);
      CHECK(found.text.find("divided by " + std::to_string(count)) != std::string::npos);
      CHECK(found.text.find(words) != std::string::npos);
    }
  Model ranks(2, {10, 20, 18});
  ranks.scale(0.5);
  CHECK(ranks.found().id == FindingId::kConstantFactor);
}

TEST_CASE("a mean of means is found for microbatches in order and dealt out, also of unequal numbers of rows") {
  const std::vector<std::int64_t> labels = {10, 2, 7, 30, 4, 9, 1};
  const std::vector<std::vector<int>> partitions = {{0, 0, 0, 0, 1, 1, 1},
                                                    {0, 0, 1, 1, 2, 2, 3},
                                                    {0, 1, 0, 1, 0, 1, 0},
                                                    {0, 1, 2, 3, 4, 5, 6},
                                                    {0, 0, 0, 1, 1, 2, 2}};
  for (const auto type : kTypes)
    for (const auto& partition : partitions) {
      Model model(2, labels, type);
      std::map<int, double> sums;
      for (std::size_t row = 0; row < labels.size(); ++row) sums[partition[row]] += static_cast<double>(labels[row]);
      std::vector<double> weights;
      for (const int part : partition) weights.push_back(63 / (sums[part] * static_cast<double>(sums.size())));
      model.weigh(weights);
      const auto found = model.found();
      INFO(found.text);
      CHECK(found.id == FindingId::kMeanOfMeans);
      CHECK(found.text.find(std::to_string(sums.size()) + " microbatches") != std::string::npos);
      CHECK(!found.factor);
    }
}

TEST_CASE("rows are told apart by a part of their gradients") {
  for (const std::int64_t stride : {3, 7}) {
    Model means(2, {10, 2, 7, 30});
    means.weigh({49.0 / 24, 49.0 / 24, 49.0 / 74, 49.0 / 74});
    means.sample(stride);
    CHECK(means.found().id == FindingId::kMeanOfMeans);
    Model rows(2, {10, 2, 7, 30});
    rows.weigh({0, 1, 1, 0});
    rows.sample(stride);
    CHECK(rows.found().text.starts_with("rows 0 and 3 do not contribute"));
    Model other(2, {10, 2, 7, 30});
    other.weigh({0, 1, 1, 0});
    other.sample(stride);
    other.scale(2, [](const Pair& pair) { return pair.layer == 1; });
    CHECK(other.found().id == FindingId::kUnknown);
  }
}

TEST_CASE("rows that do not contribute are named, and what the others are divided by") {
  for (const auto type : kTypes) {
    Model last(2, {10, 2, 7, 30, 4, 9}, type);
    last.weigh({0, 0, 0, 0, 1, 1});
    auto found = last.found();
    INFO(found.text);
    CHECK(found.id == FindingId::kMissingRows);
    CHECK(found.text.starts_with("rows 0 to 3 do not contribute"));
    Model own(2, {10, 2, 7, 30, 4, 9}, type);
    own.weigh({62.0 / 50, 0, 62.0 / 50, 62.0 / 50, 62.0 / 50, 0});  // of 62 labels rows 0, 2, 3 and 4 have 51
    found = own.found();
    INFO(found.text);
    CHECK(found.id == FindingId::kMissingRows);
    CHECK(found.text.starts_with("rows 1 and 5 do not contribute"));
  }
  Model own(2, {10, 2, 7, 30});
  own.weigh({49.0 / 39, 49.0 / 39, 0, 0});
  CHECK(own.found().text.find("times what they should") != std::string::npos);
  Model mean(2, {10, 2, 7, 30});
  mean.weigh({49.0 / 12, 49.0 / 12, 0, 0});
  CHECK(mean.found().text.find("divided by their own labels") != std::string::npos);
  Model twice(2, {10, 2, 7, 30});
  twice.weigh({1, 1, 2, 1});
  const auto found = twice.found();
  CHECK(found.id == FindingId::kUnknown);
  CHECK(found.text == "the rows count 1, 1, 2, 1 times what they should");
}

TEST_CASE("layers without gradients and layers off by a factor are told apart from kinds of weights") {
  for (const auto type : kTypes) {
    Model upper(4, {10, 20}, type);
    upper.scale(0, [](const Pair& pair) { return pair.layer >= 2; });
    auto found = upper.found();
    INFO(found.text);
    CHECK(found.id == FindingId::kMissingLayers);
    CHECK(found.text.starts_with("layers 2 to 3 have no gradient"));
    CHECK(found.tensors.size() == 14);
    Model cut(4, {10, 20}, type);
    cut.scale(0, [](const Pair& pair) { return pair.layer == 0 || pair.role == Role::kEmbedding; });
    found = cut.found();
    CHECK(found.text.starts_with("layer 0 and the embedding has no gradient"));
    Model third(4, {10, 20}, type);
    third.scale(1.0 / 3, [](const Pair& pair) { return in_layer(pair, 1); });
    found = third.found();
    INFO(found.text);
    CHECK(found.id == FindingId::kLayerFactor);
    CHECK(*found.factor == Approx(1.0 / 3).epsilon(0.02));
    CHECK(found.tensors.size() == 7);
  }
}

TEST_CASE("one kind of weight that alone differs is named, however it differs") {
  for (const auto type : kTypes)
    for (const auto& [role, words] : std::vector<std::pair<Role, std::string>>{{Role::kNorm, "norm weights"},
                                                                               {Role::kExpert, "experts"},
                                                                               {Role::kRouter, "routers"},
                                                                               {Role::kAttention, "attention weights"}})
      for (const double factor : {0.0, 0.5, 7.0}) {
        Model model(3, {10, 20}, type);
        const auto its = [&](const Pair& pair) { return pair.role == role; };
        model.scale(factor, its);
        if (factor == 7.0)  // no constant factor: one rank's tokens
          for (std::size_t i = 0; i < model.evidence().pairs.size(); ++i)
            if (its(model.evidence().pairs[i]))
              model.evidence().pairs[i].theirs = model.noise(model.made(i), "rank", 1);
        const auto found = model.found();
        INFO(found.text);
        CHECK(found.id == FindingId::kKindOfWeight);
        CHECK(found.text.starts_with(words + " alone"));
        CHECK(found.factor.has_value() == (factor != 7.0));
      }
}

TEST_CASE("a missing shard is found in any dimension, and by the tokens that a batch has") {
  for (const auto type : kTypes)
    for (const std::size_t dimension : {0, 1, 2}) {
      Model model(3, {10, 20}, type);
      for (auto& pair : model.evidence().pairs) {
        if (pair.name != "layers.1.experts.up") continue;
        const std::int64_t inner = dimension == 0 ? 96 : dimension == 1 ? 8 : 1;
        const auto size = pair.shape[dimension];
        for (std::size_t i = 0; i < pair.theirs.size(); ++i)
          if (static_cast<std::int64_t>(i) / inner % size >= size / 2) pair.theirs[i] = 0;
      }
      const auto found = model.found();
      INFO(found.text);
      CHECK(found.id == FindingId::kMissingShard);
      CHECK(found.text.find("of dimension " + std::to_string(dimension)) != std::string::npos);
      CHECK(found.text.find("(half)") != std::string::npos);
      CHECK(found.tensors == std::vector<std::string>{"layers.1.experts.up"});
    }
  Model model(1, {10, 20});
  auto& embedding = model.evidence().pairs[0];
  embedding.tied = false;
  for (std::size_t i = 0; i < embedding.ours.size(); ++i) {
    if (i / 8 % 5 == 0) embedding.ours[i] = embedding.theirs[i] = 0;  // tokens that no row has
    if (i / 8 < 12) embedding.theirs[i] = 0;
  }
  for (auto& row : model.evidence().rows)
    for (std::size_t i = 0; i < row.gradients[0].size(); ++i)
      if (i / 8 % 5 == 0) row.gradients[0][i] = 0;
  const auto found = model.found();
  INFO(found.text);
  CHECK(found.id == FindingId::kMissingShard);
  CHECK(found.text.find("0 to 11 of dimension 0 of size 24 (half)") != std::string::npos);
}

TEST_CASE("either part of a tied embedding, and parts that count unequally") {
  for (const auto type : kTypes) {
    for (const auto& [head, input, words] : std::vector<std::tuple<double, double, std::string>>{
             {1, 0, "only the head's part"}, {0, 1, "only the look-up"}, {1, 2, "2 times"}}) {
      Model model(2, {10, 20}, type);
      auto& pair = model.evidence().pairs[0];
      const auto part = model.head_part();
      for (std::size_t i = 0; i < part.size(); ++i) pair.theirs[i] = head * part[i] + input * (pair.ours[i] - part[i]);
      const auto found = model.found();
      INFO(found.text);
      CHECK(found.id == FindingId::kTiedPart);
      if (type == ElementType::kF32 || head * input == 0) CHECK(found.text.find(words) != std::string::npos);
      CHECK(found.tensors.size() == 1);
    }
  }
}

TEST_CASE("other labels are found by computing them") {
  Model model(2, {10, 20});
  auto& evidence = model.evidence();
  for (std::size_t i = 0; i < evidence.batch_labels.size(); ++i)
    evidence.batch_labels[i] = 1 + static_cast<std::int64_t>(i % 32);
  for (std::size_t i = 0; i < evidence.pairs.size(); ++i)
    evidence.pairs[i].theirs = model.noise(model.made(i), "twice", 1);
  const auto found = model.found();
  INFO(found.text);
  CHECK(found.id == FindingId::kLabels);
  CHECK(found.text.starts_with("labels are shifted twice"));
}

TEST_CASE("rounding in 16 bits is no defect of a pattern, and errors without a pattern stay unknown") {
  Model rounded(3, {10, 20});
  for (auto& pair : rounded.evidence().pairs) {
    const RandomStream random(3, pair.name);
    for (std::size_t i = 0; i < pair.theirs.size(); ++i) pair.theirs[i] *= 1 + 0.004 * (2 * random.uniform(i) - 1);
  }
  CHECK(rounded.found().id == FindingId::kRounding);
  Model part(3, {10, 20});  // of one tensor most, of the others hardly anything: a wrong loss of routers
  for (auto& pair : part.evidence().pairs) {
    const double by = pair.name == "layers.2.gate.weight" ? 0.05 : 0.0005;
    for (std::size_t i = 0; i < pair.theirs.size(); i += 2) pair.theirs[i] *= 1 + by;
  }
  CHECK(part.found().id == FindingId::kUnknown);
  Model wrong(3, {10, 20});
  for (std::size_t i = 0; i < wrong.evidence().pairs.size(); ++i)
    if (wrong.evidence().pairs[i].layer <= 1 && wrong.evidence().pairs[i].role != Role::kEmbedding)
      wrong.evidence().pairs[i].theirs = wrong.noise(wrong.made(i), "wrong", 1);
  wrong.evidence().pairs.back().theirs = wrong.evidence().pairs.back().ours;
  const auto found = wrong.found();
  INFO(found.text);
  CHECK(found.id == FindingId::kUnknown);
  CHECK(found.text.find("backward pass of layer 1") != std::string::npos);
}

TEST_CASE("a loss that alone differs is explained where it can be") {
  Model means(2, {10, 20});
  means.evidence().their_loss = (2.0 + 2.1) / 2;
  auto found = means.found();
  CHECK(found.id == FindingId::kMeanOfMeans);
  CHECK(found.tensors.empty());
  Model sum(2, {10, 20});
  sum.evidence().their_loss *= 30;
  found = sum.found();
  CHECK(found.id == FindingId::kConstantFactor);
  CHECK(found.text.find("30 label tokens") != std::string::npos);
  Model odd(2, {10, 20});
  odd.evidence().their_loss *= 1.2345;
  CHECK(odd.found().id == FindingId::kUnknown);
}

TEST_CASE("the JSON of a comparison has exactly the promised keys") {
  Model model(1, {10, 20});
  model.scale(0, [](const Pair& pair) { return pair.role == Role::kRouter; });
  auto& evidence = model.evidence();
  const auto json = nlohmann::json::parse(to_json(compare(evidence, model)));
  const auto keys = [](const nlohmann::json& object) {
    std::string out;
    for (const auto& [key, value] : object.items()) out += key + " ";
    return out;
  };
  CHECK(keys(json) == "equal finding loss tensors ");
  CHECK(keys(json["loss"]) == "ours theirs ");
  CHECK(keys(json["finding"]) == "factor id tensors text ");
  CHECK(json["finding"]["factor"] == 0);
  CHECK(json["finding"]["id"] == "kind-of-weight");
  CHECK(json["finding"]["tensors"] == nlohmann::json::array({"layers.0.gate.weight"}));
  CHECK(json["tensors"].size() == evidence.pairs.size());
  for (const auto& each : json["tensors"]) CHECK(keys(each) == "cosine name norm_ratio relative_difference ");
}

}  // namespace
}  // namespace automodel
