// Writes dumps as another trainer would.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/format/elements.h"
#include "checkpoint/format/safetensors.h"
#include "temporary_folder.h"

namespace automodel::test {

/// A tensor of any type; whole numbers are exact in a double here.
struct WrittenTensor {
  std::vector<std::int64_t> shape = {};
  std::vector<double> values = {};
  checkpoint::ElementType type = checkpoint::ElementType::kF32;
};
using WrittenTensors = std::map<std::string, WrittenTensor>;

inline std::string safetensors_of(const WrittenTensors& tensors) {
  std::vector<checkpoint::TensorInfo> infos;
  for (const auto& [name, tensor] : tensors) infos.push_back({name, tensor.type, tensor.shape});
  const auto layout = checkpoint::lay_out(infos);
  std::string out = layout.head;
  out.resize(layout.file_size);
  for (const auto& info : layout.tensors) {
    const auto& tensor = tensors.at(info.name);
    char* to = out.data() + layout.position(info);
    if (checkpoint::is_weight_type(info.type) && info.type != checkpoint::ElementType::kF64) {
      checkpoint::convert_elements(checkpoint::ElementType::kF64, reinterpret_cast<const char*>(tensor.values.data()),
                                   info.type, to, info.elements());
      continue;
    }
    const auto width = static_cast<std::size_t>(checkpoint::bits_of(info.type) / 8);
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      const auto whole = static_cast<std::int64_t>(tensor.values[i]);
      if (info.type == checkpoint::ElementType::kF64)
        std::memcpy(to + i * width, &tensor.values[i], width);
      else
        std::memcpy(to + i * width, &whole, width);  // little-endian
    }
  }
  return out;
}

inline WrittenTensor numbers(std::vector<std::int64_t> shape, std::vector<double> values,
                             checkpoint::ElementType type = checkpoint::ElementType::kI64) {
  return {std::move(shape), std::move(values), type};
}

}  // namespace automodel::test
