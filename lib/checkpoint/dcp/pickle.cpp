#include "checkpoint/dcp/pickle.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "checkpoint/format/safetensors.h"

namespace automodel::checkpoint {
namespace {

constexpr std::size_t kMostMarks = 64;         // tuples and batches of items that are open at once: 6 in practice
constexpr std::size_t kMostOpen = 100'000;     // values on the stack: batches have 1,000 items
constexpr std::size_t kMostMembers = 32;       // of an object's state: a lookup goes through all; 6 in practice
constexpr std::size_t kMostNodes = 8'000'000;  // 600 MB; in practice one per 18 bytes

struct KnownClass {
  std::string_view module, name;
  PickleClass is = PickleClass::kOther;
  ElementType type = ElementType::kF32;
};

constexpr std::string_view kMeta = "torch.distributed.checkpoint.metadata";

constexpr std::array kClasses = {
    KnownClass{kMeta, "Metadata", PickleClass::kMetadata},
    KnownClass{kMeta, "TensorStorageMetadata", PickleClass::kTensorEntry},
    KnownClass{kMeta, "BytesStorageMetadata", PickleClass::kBytesEntry},
    KnownClass{kMeta, "ChunkStorageMetadata", PickleClass::kChunk},
    KnownClass{kMeta, "TensorProperties", PickleClass::kProperties},
    KnownClass{kMeta, "MetadataIndex", PickleClass::kIndex},
    KnownClass{kMeta, "StorageMeta"},
    KnownClass{kMeta, "_MEM_FORMAT_ENCODING"},
    KnownClass{"torch.distributed.checkpoint.filesystem", "_StorageInfo", PickleClass::kStorageInfo},
    KnownClass{"torch", "Size", PickleClass::kSize},
    KnownClass{"torch", "float64", PickleClass::kElements, ElementType::kF64},
    KnownClass{"torch", "float32", PickleClass::kElements, ElementType::kF32},
    KnownClass{"torch", "bfloat16", PickleClass::kElements, ElementType::kBF16},
    KnownClass{"torch", "float16", PickleClass::kElements, ElementType::kF16},
    KnownClass{"torch", "int64", PickleClass::kElements, ElementType::kI64},
    KnownClass{"torch", "int32", PickleClass::kElements, ElementType::kI32},
    KnownClass{"torch", "int16", PickleClass::kElements, ElementType::kI16},
    KnownClass{"torch", "int8", PickleClass::kElements, ElementType::kI8},
    KnownClass{"torch", "uint8", PickleClass::kElements, ElementType::kU8},
    KnownClass{"torch", "bool", PickleClass::kElements, ElementType::kBool},
    KnownClass{"torch", "DoubleStorage", PickleClass::kStorage, ElementType::kF64},
    KnownClass{"torch", "FloatStorage", PickleClass::kStorage, ElementType::kF32},
    KnownClass{"torch", "BFloat16Storage", PickleClass::kStorage, ElementType::kBF16},
    KnownClass{"torch", "HalfStorage", PickleClass::kStorage, ElementType::kF16},
    KnownClass{"torch", "LongStorage", PickleClass::kStorage, ElementType::kI64},
    KnownClass{"torch", "IntStorage", PickleClass::kStorage, ElementType::kI32},
    KnownClass{"torch", "ShortStorage", PickleClass::kStorage, ElementType::kI16},
    KnownClass{"torch", "CharStorage", PickleClass::kStorage, ElementType::kI8},
    KnownClass{"torch", "ByteStorage", PickleClass::kStorage, ElementType::kU8},
    KnownClass{"torch", "BoolStorage", PickleClass::kStorage, ElementType::kBool},
    KnownClass{"torch._utils", "_rebuild_tensor_v2", PickleClass::kRebuildTensor},
    KnownClass{"torch.serialization", "_get_layout"},
    KnownClass{"collections", "OrderedDict"},
    KnownClass{"_codecs", "encode"},
    KnownClass{"pathlib", "PosixPath"},
    KnownClass{"pathlib", "WindowsPath"},
    KnownClass{"pathlib._local", "PosixPath"},
    KnownClass{"pathlib._local", "WindowsPath"},
};

[[noreturn]] void refuse_class(const std::string& where, const std::string& what) {
  throw Error(
      ExitCode::kCheckpoint,
      Diagnostic{"checkpoint-damaged"}
          .says("'{}' asks for {}, which is not of the format", where, what)
          .hint("nothing was executed; only classes of PyTorch's distributed checkpoints are read: save weights, "
                "optimizer and step without other Python objects")
          .at({where, 0, 0}));
}

}  // namespace

std::string_view torch_name(PickleClass kind, ElementType type) {
  for (const auto& each : kClasses)
    if (each.is == kind && each.type == type) return each.name;
  return {};
}

void fail_dcp_file(const std::string& where, const std::string& what) {
  throw Error(ExitCode::kCheckpoint, Diagnostic{"checkpoint-damaged"}
                                         .says("'{}' is not a file of a distributed checkpoint: {}", where, what)
                                         .hint("copy it again, or save it again with torch.distributed.checkpoint")
                                         .at({where, 0, 0}));
}

/// The machine of pickle's opcodes.
class PickleReader {
 public:
  explicit PickleReader(Pickle& out) : out_(out), bytes_(out.bytes_) {}

  void run() {
    while (!done_) step(static_cast<unsigned char>(take(1)[0]));
  }

 private:
  using Kind = Pickle::Kind;
  using Index = Pickle::Index;

  [[noreturn]] void fail(const std::string& what) const { fail_dcp_file(out_.where_, what); }

  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - at_) fail("the pickle ends in the middle of a value");
    const auto part = bytes_.substr(at_, static_cast<std::size_t>(size));
    at_ += static_cast<std::size_t>(size);
    return part;
  }
  std::uint64_t whole(std::size_t size) {
    const auto part = take(size);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) value |= std::uint64_t{static_cast<unsigned char>(part[i])} << (8 * i);
    return value;
  }
  std::string_view line() {
    const auto end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) fail("the pickle ends in the middle of a name");
    const auto part = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return part;
  }

  Index make(Pickle::Node node) {
    if (out_.nodes_.size() >= kMostNodes) fail(fmt::format("it has more than {} values", kMostNodes));
    out_.nodes_.push_back(std::move(node));
    return static_cast<Index>(out_.nodes_.size() - 1);
  }
  void push(Index index) {
    if (stack_.size() >= kMostOpen) fail("its values are nested too deep");
    stack_.push_back(index);
  }
  void push(Pickle::Node node) { push(make(std::move(node))); }
  /// Below the newest mark there is nothing for opcodes that take a fixed number of values.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Index pop() {
    if (stack_.size() <= floor()) fail("an opcode finds no value");
    const auto index = stack_.back();
    stack_.pop_back();
    return index;
  }
  Pickle::Node& top() {
    if (stack_.size() <= floor()) fail("an opcode finds no value");
    return out_.nodes_[stack_.back()];
  }
  std::vector<Index> pop_marked() {
    if (marks_.empty()) fail("an opcode finds no mark");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Index> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  void push_tuple(std::size_t count) {
    std::vector<Index> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    push({.kind = Kind::kTuple, .items = std::move(items)});
  }
  void append(const std::vector<Index>& items, Kind kind) {
    auto& target = top();
    // An OrderedDict gets its items as a dict does.
    const bool fits = target.kind == kind || (kind == Kind::kDict && target.kind == Kind::kObject);
    if (!fits || (kind == Kind::kDict && items.size() % 2 != 0)) fail("items for what takes none");
    if (target.kind == kind) target.items.insert(target.items.end(), items.begin(), items.end());
  }
  void push_class(std::string_view module, std::string_view name) {
    for (const auto& known : kClasses)
      if (known.module == module && known.name == name)
        return push({.kind = Kind::kClass, .is = known.is, .type = known.type});
    refuse_class(out_.where_, fmt::format("{}.{}", printable(module, kMostShown), printable(name, kMostShown)));
  }
  void push_object() {
    const auto arguments = pop(), called = pop();
    const auto& by = out_.nodes_[called];
    if (by.kind != Kind::kClass) fail("a call of what is not a class");
    push({.kind = Kind::kObject, .is = by.is, .type = by.type, .items = {arguments}});
  }
  void remember(std::uint64_t place) {
    if (place > memo_.size()) fail("its memo has gaps");
    const auto index = (top(), stack_.back());
    if (place == memo_.size())
      memo_.push_back(index);
    else
      memo_[static_cast<std::size_t>(place)] = index;
  }
  void recall(std::uint64_t place) {
    if (place >= memo_.size()) fail("it refers to a value that it does not have");
    push(memo_[static_cast<std::size_t>(place)]);
  }
  void push_long() {
    const auto size = whole(1);
    if (size > 8) fail("a whole number of more than 64 bits");
    auto value = size == 0 ? 0 : whole(static_cast<std::size_t>(size));
    if (size > 0 && size < 8 && (value >> (8 * size - 1) & 1) != 0) value |= ~std::uint64_t{0} << (8 * size);
    push({.kind = Kind::kInt, .number = static_cast<std::int64_t>(value)});
  }
  void push_float() {
    const auto part = take(8);
    std::uint64_t bits = 0;
    for (const char byte : part) bits = bits << 8U | static_cast<unsigned char>(byte);
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    push({.kind = Kind::kFloat, .real = value});
  }

  void step(unsigned char opcode) {
    switch (opcode) {
      case 0x80: take(1); break;  // PROTO
      case 0x95: take(8); break;  // FRAME
      case '(':                   // MARK
        if (marks_.size() >= kMostMarks) fail("its values are nested too deep");
        marks_.push_back(stack_.size());
        break;
      case '.': {  // STOP
        out_.root_ = pop();
        done_ = true;
        break;
      }
      case 'N': push(Pickle::Node{}); break;  // NONE
      case 0x88:
      case 0x89:  // NEWTRUE, NEWFALSE
        push({.kind = Kind::kBool, .number = opcode == 0x88});
        break;
      case 'K': push({.kind = Kind::kInt, .number = static_cast<std::int64_t>(whole(1))}); break;  // BININT1
      case 'M': push({.kind = Kind::kInt, .number = static_cast<std::int64_t>(whole(2))}); break;  // BININT2
      case 'J': push({.kind = Kind::kInt, .number = static_cast<std::int32_t>(whole(4))}); break;  // BININT
      case 0x8a: push_long(); break;                                                               // LONG1
      case 'G': push_float(); break;                                                               // BINFLOAT
      case 0x8c:
      case 'C':
      case 'U':  // SHORT_BINUNICODE, SHORT_BINBYTES
        push({.kind = Kind::kText, .text = take(whole(1))});
        break;
      case 'X':
      case 'B': push({.kind = Kind::kText, .text = take(whole(4))}); break;  // BINUNICODE, BINBYTES
      case 0x8d:
      case 0x8e: push({.kind = Kind::kText, .text = take(whole(8))}); break;
      case '}': push({.kind = Kind::kDict}); break;   // EMPTY_DICT
      case ']': push({.kind = Kind::kList}); break;   // EMPTY_LIST
      case ')': push({.kind = Kind::kTuple}); break;  // EMPTY_TUPLE
      case 0x85:
      case 0x86:
      case 0x87: push_tuple(opcode - 0x84U); break;                          // TUPLE1 to TUPLE3
      case 't': push({.kind = Kind::kTuple, .items = pop_marked()}); break;  // TUPLE
      case 'a': {                                                            // APPEND
        const auto item = pop();
        append({item}, Kind::kList);
        break;
      }
      case 'e': append(pop_marked(), Kind::kList); break;  // APPENDS
      case 's': {                                          // SETITEM
        const auto value = pop(), key = pop();
        append({key, value}, Kind::kDict);
        break;
      }
      case 'u': append(pop_marked(), Kind::kDict); break;  // SETITEMS
      case 0x94: remember(memo_.size()); break;            // MEMOIZE
      case 'q': remember(whole(1)); break;                 // BINPUT
      case 'r': remember(whole(4)); break;                 // LONG_BINPUT
      case 'h': recall(whole(1)); break;                   // BINGET
      case 'j': recall(whole(4)); break;                   // LONG_BINGET
      case 'c': {                                          // GLOBAL
        const auto module = line();
        push_class(module, line());
        break;
      }
      case 0x93: {  // STACK_GLOBAL
        const auto& name = out_.nodes_[pop()];
        const auto& module = out_.nodes_[pop()];
        if (name.kind != Kind::kText || module.kind != Kind::kText) fail("a class without a name");
        push_class(module.text, name.text);
        break;
      }
      case 'R':
      case 0x81: push_object(); break;  // REDUCE, NEWOBJ
      case 'b': {                       // BUILD
        const auto state = pop();
        auto& object = top();
        if (object.kind != Kind::kObject) fail("a state for what is not an object");
        object.state = state;
        break;
      }
      case 'Q': {  // BINPERSID: a storage of the archive
        const auto id = pop();
        push({.kind = Kind::kStorage, .items = {id}});
        break;
      }
      default: refuse_class(out_.where_, fmt::format("the opcode 0x{:02x}", opcode));
    }
  }

  Pickle& out_;
  std::string_view bytes_;
  std::size_t at_ = 0;
  bool done_ = false;
  std::vector<Index> stack_, memo_;
  std::vector<std::size_t> marks_;
};

Pickle::Pickle(std::string bytes, std::string where) : bytes_(std::move(bytes)), where_(std::move(where)) {
  PickleReader(*this).run();
}

const Pickle::Node* Pickle::find(const Node& node, std::string_view key) const {
  if (node.kind != Kind::kDict) return nullptr;
  for (std::size_t i = 0; i + 1 < node.items.size(); i += 2)
    if (const auto& name = nodes_[node.items[i]]; name.kind == Kind::kText && name.text == key)
      return &nodes_[node.items[i + 1]];
  return nullptr;
}

const Pickle::Node* Pickle::member(const Node& object, std::string_view key) const {
  if (object.kind != Kind::kObject || object.state == kAbsent) return nullptr;
  const auto& state = nodes_[object.state];
  if (state.items.size() > 2 * kMostMembers)
    fail_dcp_file(where_, fmt::format("an object with more than {} members", kMostMembers));
  return find(state, key);
}

}  // namespace automodel::checkpoint
