#include "checkpoint/format/manifest.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/crc32c.h"
#include "base/error.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/safetensors.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Diagnostic damaged(const fs::path& path, const std::string& what) {
  return Diagnostic{"checkpoint-damaged"}
      .says("'{}' {}", path.native(), what)
      .hint(
          "it was changed or truncated after it had been written and verified; use another checkpoint "
          "(checkpoint.restore_from), or copy this one again")
      .at({path.native(), 0, 0});
}

/// The components of an identity: key in the file and human-readable title.
struct IdentityRow {
  const char* key;
  std::string_view title;
  IdentityPart RunIdentity::*part;
};
constexpr std::array kIdentity = {IdentityRow{"model", "model", &RunIdentity::model},
                                  IdentityRow{"data", "data set", &RunIdentity::data},
                                  IdentityRow{"method", "method", &RunIdentity::method}};

std::optional<RunIdentity> parse_identity(const Json& json) {
  RunIdentity out;
  for (const auto& row : kIdentity) {
    const auto part = json.find(row.key);
    if (part == json.end() || !part->is_object()) return std::nullopt;
    const auto take = [&](const char* key, std::string& to) {
      const auto found = part->find(key);
      if (found == part->end() || !found->is_string()) return false;
      to = found->get<std::string>();
      return true;
    };
    if (!take("name", (out.*row.part).name) || !take("digest", (out.*row.part).digest)) return std::nullopt;
  }
  return out;
}

bool stays_inside(const std::string& name) {
  const fs::path path(name);
  if (name.empty() || path.is_absolute() || name.find('\0') != std::string::npos) return false;
  return std::none_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
}

}  // namespace

std::vector<std::string> differences(const RunIdentity& here, const RunIdentity& there) {
  std::vector<std::string> out;
  for (const auto& row : kIdentity) {
    const auto& ours = here.*row.part;
    const auto& theirs = there.*row.part;
    if (ours.digest == theirs.digest) continue;
    out.push_back(ours.name == theirs.name
                      ? fmt::format("the {} is {}, as in the checkpoint, but its content differs", row.title, ours.name)
                      : fmt::format("the {} is {}, the checkpoint's is {}", row.title, ours.name, theirs.name));
  }
  return out;
}

std::uint64_t Manifest::bytes() const {
  std::uint64_t total = 0;
  for (const auto& entry : files) total += entry.size;
  return total;
}

std::string to_json(const Manifest& manifest) {
  Json out = {{"checksum", "crc32c"}, {"files", Json::object()}};
  for (const auto& entry : manifest.files)
    out["files"][entry.file] = {{"size", entry.size}, {"crc32c", checksum_text(entry.checksum)}};
  if (manifest.run)
    for (const auto& row : kIdentity)
      out["run"][row.key] = {{"name", ((*manifest.run).*row.part).name},
                             {"digest", ((*manifest.run).*row.part).digest}};
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<Manifest> parse_manifest(std::string_view text, std::string_view file, Diagnostics& problems) {
  const auto refuse = [&](const std::string& what) -> std::optional<Manifest> {
    problems.add("manifest-syntax")
        .says("'{}' is not a manifest: {}", file, what)
        .hint("the checkpoint is damaged; use another one (checkpoint.restore_from)")
        .at({std::string(file), 0, 0});
    return std::nullopt;
  };
  const auto json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("files") || !json["files"].is_object()) return refuse("it has no 'files'");
  Manifest out;
  for (const auto& [name, entry] : json["files"].items()) {
    ManifestEntry made{.file = name};
    if (!stays_inside(name))
      return refuse(fmt::format("'{}' is not inside the checkpoint", printable(name, kMostShown)));
    if (!entry.is_object() || !entry.contains("size") || !entry["size"].is_number_unsigned() ||
        !entry.contains("crc32c") || !entry["crc32c"].is_string() ||
        !parse_checksum(entry["crc32c"].get<std::string>(), made.checksum))
      return refuse(fmt::format("'{}' has no size and crc32c", printable(name, kMostShown)));
    made.size = entry["size"].get<std::uint64_t>();
    out.files.push_back(std::move(made));
  }
  if (json.contains("run")) {
    out.run = json["run"].is_object() ? parse_identity(json["run"]) : std::nullopt;
    if (!out.run) return refuse("its 'run' lacks model, data or method, each with name and digest");
  }
  return out;
}

std::optional<Manifest> read_manifest(const fs::path& checkpoint, Diagnostics& problems) {
  const auto path = checkpoint / kManifestName;
  const auto text = read_file(path, problems, std::uint64_t{1} << 26);
  return text ? parse_manifest(*text, path.native(), problems) : std::nullopt;
}

void check_sizes(const fs::path& checkpoint, const Manifest& manifest, Diagnostics& problems) {
  for (const auto& entry : manifest.files) {
    const auto path = checkpoint / entry.file;
    std::error_code error;
    const auto size = fs::file_size(path, error);
    if (error)
      problems.push_back(damaged(path, fmt::format("is gone or cannot be read: {}", error.message())));
    else if (size != entry.size)
      problems.push_back(damaged(path, fmt::format("has {} bytes and should have {}", size, entry.size)));
  }
}

std::optional<std::uint32_t> checksum_of(const fs::path& path, Diagnostics& problems) {
  const auto file = InputFile::open(path, problems);
  if (!file) return std::nullopt;
  constexpr std::uint64_t kChunk = 4 << 20;
  std::string buffer(std::min(kChunk, file->size()), '\0');
  std::uint32_t checksum = 0;
  try {
    for (std::uint64_t at = 0; at < file->size(); at += kChunk) {
      const auto size = std::min(kChunk, file->size() - at);
      file->read(at, buffer.data(), size);
      checksum = crc32c(std::string_view(buffer).substr(0, size), checksum);
    }
  } catch (const Error& error) {
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    return std::nullopt;
  }
  return checksum;
}

void check_content(const fs::path& checkpoint, const ManifestEntry& entry, Diagnostics& problems) {
  const auto path = checkpoint / entry.file;
  const auto checksum = checksum_of(path, problems);
  if (checksum && *checksum != entry.checksum)
    problems.push_back(damaged(path, fmt::format("does not have the bytes that were written: checksum {} instead of {}",
                                                 checksum_text(*checksum), checksum_text(entry.checksum))));
}

}  // namespace automodel::checkpoint
