// Reads Python's pickles as data. Nothing is executed or imported: a class is a row of a table, an object its class
// with the arguments and the state that the pickle gives it, and whatever else a pickle asks for is refused by its
// name.
//
// Opcodes: Python's pickletools; the classes are those that torch.save and torch.distributed.checkpoint (2.x) write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/element_type.h"

namespace automodel::checkpoint {

enum class PickleClass : std::uint8_t {
  kMetadata,       ///< torch.distributed.checkpoint.metadata: of the whole checkpoint
  kTensorEntry,    ///< ... of a tensor
  kBytesEntry,     ///< ... of any other value
  kChunk,          ///< offsets and sizes of a part of a tensor
  kProperties,     ///< dtype, layout, ...
  kIndex,          ///< key of storage_data: name, offsets
  kStorageInfo,    ///< file, offset, length
  kSize,           ///< torch.Size
  kElements,       ///< torch.float32, ...
  kStorage,        ///< torch.FloatStorage, ...
  kRebuildTensor,  ///< torch._utils._rebuild_tensor_v2
  kOther,          ///< of the format, but of no interest: paths, memory formats, OrderedDict
};

/// The most bytes of a pickle: that of 1,000 ranks and 1,000 tensors has about 150 million.
inline constexpr std::uint64_t kLongestPickle = std::uint64_t{256} << 20U;

class Pickle {
 public:
  enum class Kind : std::uint8_t { kNone, kBool, kInt, kFloat, kText, kTuple, kList, kDict, kClass, kObject, kStorage };
  using Index = std::uint32_t;
  static constexpr Index kAbsent = ~Index{0};

  struct Node {
    Kind kind = Kind::kNone;
    PickleClass is = PickleClass::kOther;  ///< of a class, or of an object
    ElementType type = ElementType::kF32;  ///< of the classes kElements and kStorage
    Index state = kAbsent;                 ///< of an object
    std::int64_t number = 0;               ///< of an int or a bool
    double real = 0;
    std::string_view text = {};     ///< also of bytes; within the pickle
    std::vector<Index> items = {};  ///< a dict's are its keys and values in turn; an object's are its arguments
  };

  /// `where` names it in messages. Throws Error (kCheckpoint, checkpoint-damaged): a class or an opcode that is not the
  /// format's, not a pickle, too large or too deep.
  Pickle(std::string bytes, std::string where);
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

  const Node& root() const { return nodes_[root_]; }
  const Node& at(Index index) const { return nodes_[index]; }
  const std::string& where() const { return where_; }
  /// The value of a text key of a dict; null if there is none, or `node` is no dict.
  const Node* find(const Node& node, std::string_view key) const;
  /// The member of an object's state. Throws Error (checkpoint-damaged): a state of more than 32 members.
  const Node* member(const Node& object, std::string_view key) const;

 private:
  friend class PickleReader;
  std::string bytes_, where_;
  std::vector<Node> nodes_ = {};
  Index root_ = 0;
};

/// The name of torch's class for a type: "float32" of kElements, "FloatStorage" of kStorage; empty if it has none.
std::string_view torch_name(PickleClass kind, ElementType type);

/// Throws the Error for a file of a distributed checkpoint that is not what its format says.
[[noreturn]] void fail_dcp_file(const std::string& where, const std::string& what);

}  // namespace automodel::checkpoint
