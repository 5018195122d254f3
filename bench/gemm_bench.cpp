// Rates of the three GEMMs of a linear layer: by this program's tiles, by LibTorch's library, and by other libraries
// that are here. For example
//
//   OMP_NUM_THREADS=1 gemm_bench [--type float32|bfloat16] [--tokens 24,128,1024] [--widths 256x704,2048x8192]
//     [--library OpenBLAS=/path/to/libopenblas.so.0] [--rounds 9]
//
// Widths are inputs x outputs. GFLOP/s per thread by CPU time, the best of alternating rounds, so that other load
// matters little; operands cycle through several layers' worth, as in a step. The one that the program chooses is
// marked with
// '*'; `lost` says how much slower it is than the best, and the last lines which cells are the worst.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "base/text_table.h"
#include "ops/host_matmul.h"
#include "ops/tiled_matmul.h"

namespace automodel {
namespace {

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
struct Library {
  std::string name;
  Sgemm sgemm;
};

/// A library with the C interface of BLAS, from NAME=PATH.
Library library(const std::string& argument) {
  const auto sign = argument.find('=');
  const auto path = argument.substr(sign == std::string::npos ? 0 : sign + 1);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  void* found = nullptr;
  for (const char* symbol : {"cblas_sgemm", "scipy_cblas_sgemm"})
    if (handle != nullptr && found == nullptr) found = dlsym(handle, symbol);
  if (found == nullptr) {
    fmt::print(stderr, "no cblas_sgemm in {}\n", path);
    std::exit(2);
  }
  for (const char* symbol : {"openblas_set_num_threads", "scipy_openblas_set_num_threads"})
    if (auto* set = reinterpret_cast<void (*)(int)>(dlsym(handle, symbol))) set(at::get_num_threads());
  return {argument.substr(0, sign), reinterpret_cast<Sgemm>(found)};
}

struct Widths {
  std::int64_t inputs, outputs;
};

struct Options {
  std::vector<at::ScalarType> types = {at::kFloat, at::kBFloat16};
  std::vector<std::int64_t> tokens = {1, 8, 24, 64, 128, 256, 512, 1024, 2048, 8192};
  std::vector<Widths> widths = {{64, 64},    {256, 256},   {256, 1408},  {704, 256},    {512, 1024},  {512, 2816},
                                {1408, 512}, {1024, 1024}, {2048, 3072}, {2048, 16384}, {8192, 2048}, {8192, 8192}};
  std::vector<Library> libraries = {};
  int rounds = 9;
};

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> out(1);
  for (const char c : text)
    if (c == by)
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

Options options_of(int count, char** arguments) {
  Options out;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = arguments[i], value = arguments[i + 1];
    if (name == "--type") {
      out.types = {value == "bfloat16" ? at::kBFloat16 : at::kFloat};
    } else if (name == "--tokens") {
      out.tokens.clear();
      for (const auto& each : split(value, ',')) out.tokens.push_back(std::stoll(each));
    } else if (name == "--widths") {
      out.widths.clear();
      for (const auto& each : split(value, ',')) {
        const auto pair = split(each, 'x');
        out.widths.push_back({std::stoll(pair.front()), std::stoll(pair.back())});
      }
    } else if (name == "--rounds") {
      out.rounds = std::stoi(value);
    } else if (name == "--library") {
      out.libraries.push_back(library(value));
    } else {
      fmt::print(stderr, "unknown option {}\n", name);
      std::exit(2);
    }
  }
  return out;
}

/// One layer's operands.
struct Layer {
  at::Tensor x, weight, dy, y, dx, dw;
};

enum class Product { kForward, kInputGradient, kWeightGradient };
constexpr const char* kNames[] = {"x W^T", "dY W", "dY^T X, added"};

template <class T>
ops::MatrixView<T> view(const at::Tensor& x, bool transposed = false) {
  return {x.const_data_ptr<T>(), x.size(1), transposed};
}

template <class T>
void by_tiles(Product product, Layer& on) {
  const auto tokens = on.x.size(0), inputs = on.x.size(1), outputs = on.dy.size(1);
  const auto run = [&](at::Tensor& out, const auto& a, const auto& b, std::int64_t inner) {
    const ops::OutputMatrix<T> to = {out.mutable_data_ptr<T>(), out.size(1)};
    if constexpr (std::is_same_v<T, float>)
      ops::tiled_matmul(to, true, a, b, out.size(0), inner, out.size(1));
    else
      ops::tiled_matmul(to, a, b, out.size(0), inner, out.size(1));
  };
  switch (product) {
    case Product::kForward: return run(on.y, view<T>(on.x), view<T>(on.weight, true), inputs);
    case Product::kInputGradient: return run(on.dx, view<T>(on.dy), view<T>(on.weight), outputs);
    case Product::kWeightGradient:
      ops::tiled_matmul(ops::OutputMatrix<float>{on.dw.mutable_data_ptr<float>(), inputs}, false, view<T>(on.dy, true),
                        view<T>(on.x), outputs, tokens, inputs);
  }
}

void by_libtorch(Product product, Layer& on) {
  switch (product) {
    case Product::kForward: at::mm_out(on.y, on.x, on.weight.t()); return;
    case Product::kInputGradient: at::mm_out(on.dx, on.dy, on.weight); return;
    case Product::kWeightGradient:
      if (on.dw.scalar_type() == on.x.scalar_type())
        at::addmm_out(on.dw, on.dw, on.dy.t(), on.x);
      else
        on.dw.add_(at::mm(on.dy.t(), on.x));
  }
}

void by_library(Sgemm sgemm, Product product, Layer& on) {
  constexpr int kRows = 101, kPlain = 111, kTransposed = 112;
  const auto tokens = static_cast<int>(on.x.size(0)), inputs = static_cast<int>(on.x.size(1)),
             outputs = static_cast<int>(on.dy.size(1));
  const auto* x = on.x.const_data_ptr<float>();
  const auto* w = on.weight.const_data_ptr<float>();
  const auto* dy = on.dy.const_data_ptr<float>();
  auto* out = (product == Product::kForward         ? on.y
               : product == Product::kInputGradient ? on.dx
                                                    : on.dw)
                  .mutable_data_ptr<float>();
  switch (product) {
    case Product::kForward:
      return sgemm(kRows, kPlain, kTransposed, tokens, outputs, inputs, 1, x, inputs, w, inputs, 0, out, outputs);
    case Product::kInputGradient:
      return sgemm(kRows, kPlain, kPlain, tokens, inputs, outputs, 1, dy, outputs, w, inputs, 0, out, inputs);
    case Product::kWeightGradient:
      return sgemm(kRows, kTransposed, kPlain, outputs, inputs, tokens, 1, dy, outputs, x, inputs, 1, out, inputs);
  }
}

struct Contender {
  std::string name;
  std::function<void(Product, Layer&)> run;
};

/// Whether the program does not leave this GEMM to LibTorch's library.
bool chosen_here(Product product, Layer& on) {
  switch (product) {
    case Product::kForward: return ops::host_matmul_with_weight(on.y, on.x, on.weight.t());
    case Product::kInputGradient: return ops::host_matmul_with_weight(on.dx, on.dy, on.weight);
    case Product::kWeightGradient: return ops::host_matmul(on.dw, false, on.dy, on.x);
  }
  return false;
}

struct Loss {
  double share;
  std::string cell;
};

class Bench {
 public:
  explicit Bench(Options options) : options_(std::move(options)) {}

  void run() {
    for (const auto type : options_.types) type == at::kFloat ? table<float>(type) : table<c10::BFloat16>(type);
    std::sort(losses_.begin(), losses_.end(), [](const Loss& a, const Loss& b) { return a.share > b.share; });
    const auto above =
        std::count_if(losses_.begin(), losses_.end(), [](const Loss& each) { return each.share > 0.05; });
    fmt::print("\n{} of {} cells lose more than 5 %. The worst:\n", above, losses_.size());
    for (std::size_t i = 0; i < std::min<std::size_t>(12, losses_.size()); ++i)
      fmt::print("  {:5.1f} %  {}\n", 100 * losses_[i].share, losses_[i].cell);
  }

 private:
  template <class T>
  std::vector<Contender> contenders() {
    std::vector<Contender> out;
    if (ops::has_tiles<T>()) out.push_back({"tiles", [](Product p, Layer& on) { by_tiles<T>(p, on); }});
    out.push_back({"LibTorch", by_libtorch});
    if constexpr (std::is_same_v<T, float>)
      for (const auto& each : options_.libraries)
        out.push_back({each.name, [each](Product p, Layer& on) { by_library(each.sgemm, p, on); }});
    else if (ops::has_host_matmul<T>() && !ops::has_own_matmul<T>())
      out.push_back({"MKL, one call", [](Product p, Layer& on) {
                       if (p == Product::kWeightGradient) ops::host_matmul(on.dw, false, on.dy, on.x);
                     }});
    return out;
  }

  template <class T>
  void table(at::ScalarType type) {
    const auto all = contenders<T>();
    std::vector<std::string> header = {"GEMM", "tokens", "inputs", "outputs"};
    for (const auto& each : all) header.push_back(each.name);
    header.emplace_back("lost %");
    TextTable table(header);
    for (std::size_t p = 0; p < std::size(kNames); ++p)
      for (const auto& [inputs, outputs] : options_.widths)
        for (const auto tokens : options_.tokens)
          if (static_cast<double>(tokens) * static_cast<double>(inputs * outputs) < 4e10)
            row(table, all, static_cast<Product>(p), type, tokens, {inputs, outputs});
    fmt::print("\n{}, {} threads, GFLOP/s per thread\n{}", type == at::kFloat ? "float32" : "bfloat16",
               at::get_num_threads(), table.text());
  }

  std::vector<Layer> layers(at::ScalarType type, std::int64_t tokens, Widths w) const {
    constexpr double kBytes = 48 << 20;
    const auto size = static_cast<double>(w.inputs * w.outputs + tokens * (w.inputs + w.outputs)) * 8;
    std::vector<Layer> out;
    do {
      out.push_back({at::randn({tokens, w.inputs}).to(type), at::randn({w.outputs, w.inputs}).to(type),
                     at::randn({tokens, w.outputs}).to(type), at::zeros({tokens, w.outputs}).to(type),
                     at::zeros({tokens, w.inputs}).to(type), at::zeros({w.outputs, w.inputs})});
    } while (out.size() < 16 && static_cast<double>(out.size()) * size < kBytes);
    return out;
  }

  void row(TextTable& table, const std::vector<Contender>& all, Product product, at::ScalarType type,
           std::int64_t tokens, Widths w) {
    auto on = layers(type, tokens, w);
    const double work = 2.0 * static_cast<double>(tokens) * static_cast<double>(w.inputs * w.outputs);
    // A round takes a millisecond or more, because the clock is read by a call of the system.
    const auto calls = std::max<std::size_t>(1, static_cast<std::size_t>(2e8 / work));
    const auto works = [&](const Contender& each) {
      return each.name != "MKL, one call" || product == Product::kWeightGradient;
    };
    std::vector<double> best(all.size(), 1e9);
    std::size_t next = 0;
    for (int round = 0; round <= options_.rounds; ++round)
      for (std::size_t c = 0; c < all.size(); ++c) {
        if (!works(all[c])) continue;
        const auto begin = cpu_seconds();
        for (std::size_t i = 0; i < calls; ++i) all[c].run(product, on[next++ % on.size()]);
        if (round > 0) best[c] = std::min(best[c], (cpu_seconds() - begin) / static_cast<double>(calls));
      }
    const bool here = chosen_here(product, on.front());
    const bool one_call = here && works(all.back()) && all.back().name == "MKL, one call";
    const auto chosen = static_cast<std::size_t>(
        std::find_if(all.begin(), all.end(),
                     [&](const Contender& each) {
                       return each.name == (one_call ? "MKL, one call" : here ? "tiles" : "LibTorch");
                     }) -
        all.begin());
    const auto fastest = *std::min_element(best.begin(), best.end());
    const double lost = 1 - fastest / best[chosen];
    std::vector<std::string> cells = {kNames[static_cast<std::size_t>(product)], fmt::to_string(tokens),
                                      fmt::to_string(w.inputs), fmt::to_string(w.outputs)};
    for (std::size_t c = 0; c < all.size(); ++c)
      cells.push_back(best[c] < 1e9 ? fmt::format("{:.0f}{}", work / best[c] / 1e9, c == chosen ? "*" : "") : "");
    cells.push_back(fmt::format("{:.0f}", 100 * lost));
    losses_.push_back({lost, fmt::format("{} {}, {} tokens, {} x {}", type == at::kFloat ? "float32" : "bfloat16",
                                         cells.front(), tokens, w.inputs, w.outputs)});
    table.add(cells);
  }

  Options options_;
  std::vector<Loss> losses_;
};

}  // namespace
}  // namespace automodel

int main(int count, char** arguments) {
  automodel::Bench(automodel::options_of(count, arguments)).run();
}
