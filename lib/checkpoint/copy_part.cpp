#include "checkpoint/copy_part.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/tensor_file.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMessage = std::uint64_t{4} << 20;  // bytes
constexpr const char* kRecords = "parts";
constexpr std::string_view kStem = "rank_", kEnding = ".safetensors";
constexpr const char *kExtents = "extents", *kChecksums = "checksums";
constexpr std::size_t kNumbers = 3;  // per extent

fs::path record_of(const fs::path& copy, int rank) {
  return copy / kRecords / fmt::format("{}{}{}", kStem, rank, kEnding);
}

bool is_tensor_file(const ManifestEntry& entry) {
  return entry.file.ends_with(kEnding);
}

[[noreturn]] void damaged(const fs::path& copy, int rank) {
  throw Error(Diagnostic{"checkpoint-damaged"}
                  .says("the part of rank {} in '{}' differs from what was written", rank, copy.native())
                  .hint("another copy of it, or a checkpoint on disk, is used instead")
                  .at({copy.native(), 0, 0}));
}

/// A part flattened to numbers: extents, then checksums.
std::vector<std::uint64_t> numbers_of(const CopyPart& part) {
  std::vector<std::uint64_t> out;
  out.reserve(kNumbers * part.extents.size() + part.checksums.size());
  for (const auto& each : part.extents) out.insert(out.end(), {each.file, each.offset, each.size});
  out.insert(out.end(), part.checksums.begin(), part.checksums.end());
  return out;
}

CopyPart part_of(int rank, const std::vector<std::uint64_t>& numbers, std::size_t files) {
  CopyPart out{.rank = rank};
  const std::size_t end = numbers.size() - files;
  for (std::size_t i = 0; i + kNumbers <= end; i += kNumbers)
    out.extents.push_back({numbers[i], numbers[i + 1], numbers[i + 2]});
  for (std::size_t i = end; i < numbers.size(); ++i) out.checksums.push_back(static_cast<std::uint32_t>(numbers[i]));
  return out;
}

std::string_view bytes_of(const std::vector<std::uint64_t>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::uint64_t)};
}

/// Walks a part's bytes in order and passes them to `use` as extents, at most `most` bytes per call of next().
class Walk {
 public:
  explicit Walk(const CopyPart& part) : part_(part) {}
  std::uint64_t next(std::uint64_t most, const std::function<void(const Extent&)>& use) {
    std::uint64_t taken = 0;
    while (taken < most && at_ < part_.extents.size()) {
      const auto& extent = part_.extents[at_];
      const auto size = std::min(most - taken, extent.size - inside_);
      use({extent.file, extent.offset + inside_, size});
      taken += size;
      inside_ += size;
      if (inside_ == extent.size) {
        ++at_;
        inside_ = 0;
      }
    }
    return taken;
  }

 private:
  const CopyPart& part_;
  std::size_t at_ = 0;
  std::uint64_t inside_ = 0;
};

std::vector<PiecewiseCrc32c> checksums_for(const std::vector<ManifestEntry>& files) {
  std::vector<PiecewiseCrc32c> out;
  for (const auto& file : files) out.emplace_back(file.size);
  return out;
}

bool same(const std::vector<PiecewiseCrc32c>& mine, const std::vector<std::uint32_t>& wanted) {
  return std::ranges::equal(mine, wanted, {}, &PiecewiseCrc32c::state);
}

/// Reads a part's bytes from a folder.
class PartReader {
 public:
  PartReader(fs::path copy, const std::vector<ManifestEntry>& files, const CopyPart& part)
      : copy_(std::move(copy)), files_(files), walk_(part) {}
  std::uint64_t read(char* out, std::uint64_t most) {
    return walk_.next(most, [&](const Extent& extent) {
      open(extent.file).read(extent.offset, out, extent.size);
      if (watch_) watch_(extent, {out, extent.size});
      out += extent.size;
    });
  }
  void watch(std::function<void(const Extent&, std::string_view)> watch) { watch_ = std::move(watch); }

 private:
  const InputFile& open(std::uint64_t file) {
    if (!input_ || file != open_) {
      Diagnostics problems;
      input_.reset();
      if (auto opened = InputFile::open(copy_ / files_[file].file, problems)) input_.emplace(std::move(*opened));
      if (!input_) throw Error(ExitCode::kCheckpoint, std::move(problems));
      open_ = file;
    }
    return *input_;
  }
  fs::path copy_;
  const std::vector<ManifestEntry>& files_;
  Walk walk_;
  std::optional<InputFile> input_;
  std::uint64_t open_ = 0;
  std::function<void(const Extent&, std::string_view)> watch_;
};

/// Writes a part's bytes into a folder.
class PartWriter {
 public:
  PartWriter(fs::path copy, const std::vector<ManifestEntry>& files, const CopyPart& part)
      : copy_(std::move(copy)), files_(files), walk_(part), checksums_(checksums_for(files)) {}
  void write(const char* bytes, std::uint64_t size) {
    walk_.next(size, [&](const Extent& extent) {
      if (!output_ || extent.file != open_) {
        output_ = std::make_unique<OutputFile>(copy_ / files_[extent.file].file, OutputFile::Mode::kExisting);
        open_ = extent.file;
      }
      const std::string_view some(bytes, extent.size);
      output_->write(extent.offset, some);
      checksums_[extent.file].add(extent.offset, some);
      bytes += extent.size;
    });
  }
  const std::vector<PiecewiseCrc32c>& checksums() const { return checksums_; }

 private:
  fs::path copy_;
  const std::vector<ManifestEntry>& files_;
  Walk walk_;
  std::vector<PiecewiseCrc32c> checksums_;
  std::unique_ptr<OutputFile> output_;
  std::uint64_t open_ = 0;
};

/// Keeps the first error; later attempts do nothing.
class FirstFailure {
 public:
  void attempt(const std::function<void()>& work) {
    if (failure_) return;
    try {
      work();
    } catch (const Error&) {
      failure_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::exception_ptr failure_;
};

at::Tensor buffer_of(std::uint64_t bytes) {
  return at::empty({static_cast<std::int64_t>(bytes)}, at::kByte);
}

/// Checks that every extent lies within its file before a part is used.
bool plausible(const CopyPart& part, const std::vector<ManifestEntry>& files) {
  return part.checksums.size() == files.size() && std::ranges::all_of(part.extents, [&](const Extent& each) {
           return each.file < files.size() && each.size > 0 && each.offset <= files[each.file].size &&
                  each.size <= files[each.file].size - each.offset;
         });
}

}  // namespace

std::uint64_t CopyPart::bytes() const {
  std::uint64_t out = 0;
  for (const auto& each : extents) out += each.size;
  return out;
}

std::vector<ManifestEntry> tensor_files(const Manifest& manifest) {
  auto out = manifest.files;
  std::erase_if(out, [](const ManifestEntry& each) { return !is_tensor_file(each); });
  std::ranges::sort(out, {}, &ManifestEntry::file);
  return out;
}

std::vector<ManifestEntry> other_files(const Manifest& manifest) {
  auto out = manifest.files;
  std::erase_if(out, is_tensor_file);
  return out;
}

void write_record(const fs::path& copy, const CopyPart& part) {
  std::error_code error;
  fs::create_directories(copy / kRecords, error);
  const auto numbers = numbers_of(part);
  const auto extents = static_cast<std::int64_t>(part.extents.size());
  const auto layout = lay_out({{kExtents, ElementType::kU64, {extents, static_cast<std::int64_t>(kNumbers)}},
                               {kChecksums, ElementType::kU64, {static_cast<std::int64_t>(part.checksums.size())}}});
  const auto path = record_of(copy, part.rank);
  fs::remove(path, error);
  OutputFile file(path, OutputFile::Mode::kCreate);
  file.lengthen(layout.file_size);
  const auto all = bytes_of(numbers);
  for (const auto& tensor : layout.tensors)
    file.write(layout.position(tensor),
               tensor.name == kExtents ? all.substr(0, tensor.bytes()) : all.substr(all.size() - tensor.bytes()));
  file.write(0, layout.head);
}

std::vector<int> recorded_ranks(const fs::path& copy) {
  std::vector<int> out;
  std::error_code error;
  for (fs::directory_iterator it(copy / kRecords, error), end; !error && it != end; it.increment(error)) {
    const auto text = it->path().filename().native();
    std::string_view name = text;
    if (!name.starts_with(kStem) || !name.ends_with(kEnding)) continue;
    name = name.substr(kStem.size(), name.size() - kStem.size() - kEnding.size());
    int rank = 0;
    const auto [rest, failed] = std::from_chars(name.data(), name.data() + name.size(), rank);
    if (failed == std::errc() && rest == name.data() + name.size() && rank >= 0) out.push_back(rank);
  }
  std::ranges::sort(out);
  return out;
}

CopyPart read_record(const fs::path& copy, int rank, const std::vector<ManifestEntry>& files) {
  Diagnostics problems;
  const auto record = TensorFile::open(record_of(copy, rank), problems);
  if (!record) throw Error(ExitCode::kCheckpoint, std::move(problems));
  std::vector<std::uint64_t> numbers;
  for (const char* name : {kExtents, kChecksums}) {
    const auto* info = record->find(name);
    if (info == nullptr || info->type != ElementType::kU64) damaged(copy, rank);
    const auto before = numbers.size();
    numbers.resize(before + info->bytes() / sizeof(std::uint64_t));
    record->read(*info, 0, reinterpret_cast<char*>(numbers.data() + before), info->bytes());
  }
  if (numbers.size() < files.size()) damaged(copy, rank);
  auto out = part_of(rank, numbers, files.size());
  if (!plausible(out, files)) damaged(copy, rank);
  return out;
}

CopyPart read_verified(const fs::path& copy, int rank, const std::vector<ManifestEntry>& files) {
  const auto out = read_record(copy, rank, files);
  auto checksums = checksums_for(files);
  PartReader reader(copy, files, out);
  reader.watch([&](const Extent& extent, std::string_view bytes) { checksums[extent.file].add(extent.offset, bytes); });
  std::string buffer(kMessage, '\0');
  while (reader.read(buffer.data(), kMessage) > 0) {
  }
  if (!same(checksums, out.checksums)) damaged(copy, rank);
  return out;
}

std::vector<CopyPart> exchange_parts(comm::Communicator& group, const fs::path& copy,
                                     const std::vector<ManifestEntry>& files, const std::vector<Outgoing>& outgoing,
                                     const std::vector<Incoming>& incoming) {
  const auto swap = [&](const std::vector<at::Tensor>& sent, const std::vector<at::Tensor>& received) {
    std::vector<comm::Transfer> sends, receives;
    for (std::size_t i = 0; i < sent.size(); ++i)
      if (sent[i].defined()) sends.push_back({sent[i], outgoing[i].to});
    for (std::size_t i = 0; i < received.size(); ++i)
      if (received[i].defined()) receives.push_back({received[i], incoming[i].from});
    if (!sends.empty() || !receives.empty()) group.exchange(std::move(sends), std::move(receives))->wait();
  };
  // First the number of extents, then the extents, then their bytes.
  std::vector<at::Tensor> sent, received;
  for (const auto& each : outgoing) {
    sent.push_back(buffer_of(sizeof(std::uint64_t)));
    const std::uint64_t count = each.part->extents.size();
    std::memcpy(sent.back().mutable_data_ptr(), &count, sizeof count);
  }
  for (std::size_t i = 0; i < incoming.size(); ++i) received.push_back(buffer_of(sizeof(std::uint64_t)));
  swap(sent, received);
  for (std::size_t i = 0; i < outgoing.size(); ++i) {
    const auto numbers = numbers_of(*outgoing[i].part);
    const auto bytes = bytes_of(numbers);
    sent[i] = buffer_of(bytes.size());
    std::memcpy(sent[i].mutable_data_ptr(), bytes.data(), bytes.size());
  }
  for (auto& each : received) {
    std::uint64_t count = 0;
    std::memcpy(&count, each.const_data_ptr(), sizeof count);
    each = buffer_of((kNumbers * count + files.size()) * sizeof(std::uint64_t));
  }
  swap(sent, received);
  std::vector<CopyPart> out;
  for (std::size_t i = 0; i < incoming.size(); ++i) {
    std::vector<std::uint64_t> numbers(static_cast<std::size_t>(received[i].numel()) / sizeof(std::uint64_t));
    std::memcpy(numbers.data(), received[i].const_data_ptr(), numbers.size() * sizeof(std::uint64_t));
    out.push_back(part_of(incoming[i].rank, numbers, files.size()));
    AUTOMODEL_CHECK(plausible(out.back(), files), "a part of another checkpoint");
  }
  FirstFailure failure;
  std::vector<PartReader> readers;
  std::vector<PartWriter> writers;
  std::vector<std::uint64_t> to_send, to_receive;
  for (const auto& each : outgoing) {
    readers.emplace_back(copy, files, *each.part);
    to_send.push_back(each.part->bytes());
  }
  for (const auto& each : out) {
    writers.emplace_back(copy, files, each);
    to_receive.push_back(each.bytes());
  }
  const auto left = [](const std::vector<std::uint64_t>& sizes) {
    return std::ranges::any_of(sizes, [](std::uint64_t size) { return size > 0; });
  };
  while (left(to_send) || left(to_receive)) {
    sent.assign(outgoing.size(), {});
    received.assign(incoming.size(), {});
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const auto size = std::min(kMessage, to_send[i]);
      to_send[i] -= size;
      if (size == 0) continue;
      sent[i] = buffer_of(size);
      failure.attempt([&] { readers[i].read(static_cast<char*>(sent[i].mutable_data_ptr()), size); });
    }
    for (std::size_t i = 0; i < received.size(); ++i)
      if (to_receive[i] > 0) received[i] = buffer_of(std::min(kMessage, to_receive[i]));
    swap(sent, received);
    for (std::size_t i = 0; i < received.size(); ++i) {
      if (!received[i].defined()) continue;
      const auto size = static_cast<std::uint64_t>(received[i].numel());
      to_receive[i] -= size;
      failure.attempt([&] { writers[i].write(static_cast<const char*>(received[i].const_data_ptr()), size); });
    }
  }
  failure.rethrow();
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!same(writers[i].checksums(), out[i].checksums)) damaged(copy, out[i].rank);
    write_record(copy, out[i]);
  }
  return out;
}

}  // namespace automodel::checkpoint
