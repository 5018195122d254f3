// Maps the tensors in a folder to a model's parameters: names, alternative names, shapes.
//
// Accepted besides a parameter's own name (as in transformers):
//   - the name without the base model's prefix ("h.0.ln_1.weight" for "transformer.h.0.ln_1.weight"), as in GPT-2's
//     folder on the hub;
//   - an expert's matrices inside transformers 5's fused tensors (experts.gate_up_proj [E, 2I, H], experts.down_proj
//     [E, H, I]) or Step 3.5's stacks of one matrix each, and Mixtral's under transformers 5's names (mlp for
//     block_sparse_moe); MiniMax-M3's other gates and ups joined (gate_up_proj);
//   - the modules of a model with a vision tower under other names (language_model.model, vision_tower.vision_model);
//   - the head in place of a tied embedding that is missing.
// Ignored: computed buffers (rotary_emb.inv_freq, embeddings.position_ids, GPT-2's attn.bias and attn.masked_bias), a
// tied head, layers for multi-token prediction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "arch/layout.h"
#include "arch/model_spec.h"
#include "arch/modules.h"
#include "base/diagnostic.h"
#include "checkpoint/format/tensor_folder.h"

namespace automodel::checkpoint {

/// Elements [first, first + numel) of a stored tensor are the parameter, row-major; or, with a stride, element (row,
/// column) of the parameter is element first + column * stride + row.
struct WeightPlace {
  StoredTensor stored = {};
  std::int64_t first = 0;
  std::int64_t stride = 0;
};

/// Keyed by FQN as in arch::parameters; excludes a tied head.
using WeightPlaces = std::unordered_map<std::string, WeightPlace>;

/// Which parameters must be there: of a model all, of gradients those that are trained and no buffers, of a model that
/// training begins with all but a classifier's head, for which the result has no place if it is missing: the folder may
/// hold the language model that the classifier is made of.
enum class WantedWeights : std::uint8_t { kAll, kTrainable, kBase };

/// Locates every parameter. Problems (all are reported, each listing at most twenty names): weights-missing,
/// weights-unexpected, weights-shape, weights-quantized.
/// A classifier's folder may also hold the head of a language model.
WeightPlaces find_weights(const TensorFolder& folder, const arch::ModelSpec& spec, const arch::Layout& layout,
                          Diagnostics& problems, WantedWeights wanted = WantedWeights::kAll);

/// The tensor of a saved folder that holds a parameter, and where in it.
struct WrittenWeight {
  std::string name = {};
  std::vector<std::int64_t> shape = {};
  std::int64_t first = 0;
};
/// Names in memory are those that transformers reads. It reads the experts of Qwen3-VL, Mistral 4, Gemma 4 and Granite
/// only joined, as it writes them: gate_up_proj [experts, 2 * width, hidden] and down_proj [experts, hidden, width]
/// (Granite's input_linear and output_linear); Step 3.5's in three stacks; and
/// MiniMax-M3's language model by itself under names of its own. Models of Step 3.7 and MiniMax-M3 with pictures have
/// the published names.
WrittenWeight written_as(const arch::Parameter& parameter, const arch::ModelSpec& spec);

/// Whether a model with tied head and embedding has a separate head with different values in this folder; transformers
/// 5 does not tie them in that case. Reads both tensors if both are present.
bool head_differs(const TensorFolder& folder, const arch::Layout& layout);

/// The row of a projection in Hugging Face's order, where the halves of each head follow one another: pair i of a head
/// becomes rows i and head_dim / 2 + i.
std::int64_t unpaired_row(std::int64_t row, std::int64_t head_dim);

}  // namespace automodel::checkpoint
