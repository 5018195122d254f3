#include "train/weight_files.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "checkpoint/format/elements.h"
#include "model/router.h"
#include "model/slice.h"
#include "ops/graph.h"

namespace automodel::train {
namespace {

constexpr std::int64_t kChunk = 1 << 20;  // elements read and converted at a time

/// Elements [first, first + count) of a stored tensor as `type`, into host memory.
void read_converted(const checkpoint::StoredTensor& stored, std::int64_t first, std::int64_t count,
                    checkpoint::ElementType type, char* out) {
  const auto from = stored.info->type;
  const auto from_size = checkpoint::bits_of(from) / 8, to_size = checkpoint::bits_of(type) / 8;
  const auto read = [&](std::int64_t at, std::int64_t some, char* to) {
    stored.file->read(*stored.info, static_cast<std::uint64_t>(at * from_size), to,
                      static_cast<std::uint64_t>(some * from_size));
  };
  if (from == type) return read(first, count, out);
  std::vector<char> buffer(static_cast<std::size_t>(std::min(count, kChunk) * from_size));
  for (std::int64_t at = 0; at < count; at += kChunk) {
    const auto some = std::min(kChunk, count - at);
    read(first + at, some, buffer.data());
    checkpoint::convert_elements(from, buffer.data(), type, out + at * to_size, some);
  }
}

/// The same of a matrix that is stored transposed, beside others. Its whole block is read: strided reads of single
/// numbers would take longer.
void read_turned(const checkpoint::WeightPlace& place, const model::Weight& weight, std::int64_t first,
                 const at::Tensor& out) {
  const ops::NoGraph guard;
  const auto columns = weight.full[1];
  const auto block = at::empty({columns, place.stride}, at::TensorOptions().dtype(out.scalar_type()));
  read_converted(place.stored, place.first - place.first % place.stride, block.numel(), element_type(out.scalar_type()),
                 static_cast<char*>(block.mutable_data_ptr()));
  const auto matrix = block.narrow(1, place.first % place.stride, weight.full[0]).t().contiguous().view({-1});
  for (const auto& run : model::runs(weight.slice, weight.full, first, out.numel()))
    out.view({-1}).narrow(0, run.local - first, run.length).copy_(matrix.narrow(0, run.full, run.length));
}

/// Numbers of experts, folded as convert_elements() does: they choose rows of memory.
void check_experts(const checkpoint::StoredTensor& stored, const arch::Parameter& info, const at::Tensor& table) {
  if (table.numel() == 0) return;
  // Not a number if any is negative in the file.
  const auto most = model::numbers_of_experts(table.to(at::kDouble)).max().item<double>();
  if (most < info.start) return;
  throw Error(ExitCode::kCheckpoint,
              Diagnostic{"expert-out-of-range"}
                  .says("'{}' of '{}' names an expert that is not one of the model's {}", info.fqn,
                        stored.file->path().native(), static_cast<std::int64_t>(info.start))
                  .hint("experts are numbered from 0; the table belongs to another model, or is damaged"));
}

}  // namespace

checkpoint::ElementType element_type(at::ScalarType type) {
  if (type == at::kDouble) return checkpoint::ElementType::kF64;
  if (type == at::kFloat) return checkpoint::ElementType::kF32;
  if (type == at::kBFloat16) return checkpoint::ElementType::kBF16;
  if (type == at::kHalf) return checkpoint::ElementType::kF16;
  throw InternalError("weights of a type that is not floating-point");
}

void read_elements(const checkpoint::StoredTensor& stored, std::int64_t base, const model::Weight& weight,
                   std::int64_t first, const at::Tensor& out) {
  const ops::NoGraph guard;
  const auto type = element_type(out.scalar_type());
  const bool direct = out.is_cpu() && out.is_contiguous();
  const auto host = direct ? out : at::empty({out.numel()}, at::TensorOptions().dtype(out.scalar_type()));
  auto* bytes = static_cast<char*>(host.mutable_data_ptr());
  const auto size = checkpoint::bits_of(type) / 8;
  for (const auto& run : model::runs(weight.slice, weight.full, first, out.numel()))
    read_converted(stored, base + run.full, run.length, type, bytes + (run.local - first) * size);
  if (weight.info.part == arch::Part::kRouterTable) check_experts(stored, weight.info, host);
  if (!direct) out.copy_(host.view(out.sizes()));
}

std::shared_ptr<const WeightFiles> WeightFiles::open(const std::filesystem::path& folder,
                                                     const plan::ModelChoice& model, bool compare_head,
                                                     Diagnostics& problems, checkpoint::WantedWeights wanted) {
  auto opened = checkpoint::TensorFolder::open(folder, "model", problems);
  if (!opened) return nullptr;
  std::shared_ptr<WeightFiles> out(new WeightFiles(std::move(*opened)));
  const std::size_t before = problems.size();
  out->places_ = checkpoint::find_weights(out->folder_, model.spec, model.layout, problems, wanted);
  if (problems.size() > before) return nullptr;
  if (compare_head && checkpoint::head_differs(out->folder_, model.layout)) {
    problems.add("weights-not-tied", "model.pretrained_model_name_or_path")
        .says("head and embedding in '{}' differ, but config.json ties them", folder.native())
        .hint("say model.tie_word_embeddings: false, which is what transformers then does");
    return nullptr;
  }
  return out;
}

void WeightFiles::read(const model::Weight& weight, std::int64_t first, const at::Tensor& out) const {
  const auto& name = weight.info.tied_to.empty() ? weight.info.fqn : weight.info.tied_to;
  const auto& place = places_.at(name);
  if (place.stride > 0) return read_turned(place, weight, first, out);
  read_elements(place.stored, place.first, weight, first, out);
}

std::shared_ptr<const AdapterFiles> AdapterFiles::open(const std::filesystem::path& folder,
                                                       const plan::AdapterPlan& adapters, Diagnostics& problems) {
  const auto config = checkpoint::read_adapter_config(folder, problems);
  auto opened = checkpoint::TensorFolder::open(folder, checkpoint::kAdapterStem, problems);
  if (!config || !opened) return nullptr;
  std::shared_ptr<AdapterFiles> out(new AdapterFiles(std::move(*opened)));
  out->config_ = *config;
  const std::size_t before = problems.size();
  const auto refuse = [&](ProblemId id, const std::string& name, const std::string& what) {
    problems.add(id, "peft")
        .says("'{}': the adapter matrix '{}' {}", folder.native(), name, what)
        .hint("the checkpoint was saved with another peft section")
        .at({folder.native(), 0, 0});
  };
  std::size_t found = 0;
  for (const auto& info : adapters.all) {
    if (info.role != arch::Role::kAdapter) continue;
    const auto stored = out->folder_.find(checkpoint::stored_adapter_name(info.fqn));
    const std::vector<std::int64_t> shape(info.shape.begin(), info.shape.end());
    if (!stored) {
      refuse("weights-missing", info.fqn, "is not there");
    } else if (stored.info->shape != shape || !checkpoint::is_weight_type(stored.info->type)) {
      refuse("weights-shape", info.fqn,
             fmt::format("is {}, not {}", checkpoint::describe(*stored.info), arch::to_text(info.shape)));
    } else {
      ++found;
    }
    if (problems.size() > before) return nullptr;  // one problem is enough: the others would be alike
  }
  if (found < out->folder_.tensors().size()) {
    problems.add("weights-unexpected", "peft")
        .says("'{}' has {} adapter matrices, the recipe asks for {}", folder.native(), out->folder_.tensors().size(),
              found)
        .hint("the checkpoint was saved with another peft section")
        .at({folder.native(), 0, 0});
    return nullptr;
  }
  return out;
}

void AdapterFiles::read(const model::Weight& weight, std::int64_t first, const at::Tensor& out) const {
  read_elements(folder_.find(checkpoint::stored_adapter_name(weight.info.fqn)), 0, weight, first, out);
}

parallel::WeightSource adapters_over(parallel::WeightSource base, parallel::WeightSource adapters) {
  return [base = std::move(base), adapters = std::move(adapters)](const model::Weight& weight, std::int64_t first,
                                                                  const at::Tensor& out) {
    (weight.info.role == arch::Role::kAdapter ? adapters : base)(weight, first, out);
  };
}

parallel::WeightSource stored_values(std::shared_ptr<const WeightFiles> files, parallel::WeightSource rest) {
  return [files = std::move(files), rest = std::move(rest)](const model::Weight& weight, std::int64_t first,
                                                            const at::Tensor& out) {
    if (rest && weight.info.tied_to.empty() && !files->has(weight.info.fqn)) return rest(weight, first, out);
    files->read(weight, first, out);
  };
}

}  // namespace automodel::train
