// Typed reading of a mapping of another trainer's configuration, which remembers what was asked for: what is left over
// is reported, so that no key passes unseen.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/node.h"
#include "foreign/findings.h"
#include "foreign/resolved.h"

namespace automodel::foreign {

/// Keys that share a reason. A name may end with '*'.
struct KeyReason {
  std::string_view name;
  std::string_view reason;
};

class Keys {
 public:
  using Names = std::initializer_list<std::string_view>;  ///< spellings; the first one that is given counts

  /// `node` may be null (a section that is absent) and must outlive this.
  Keys(const config::Node* node, Findings& findings, std::string prefix = "");

  /// Whether the key has a value: absent, null and empty text are the same in all of these files.
  bool given(std::string_view name) const;
  /// Given, and neither false, 0 nor a word for off.
  bool active(std::string_view name) const;
  const config::Node* node(Names names);
  Setting<std::string> text(Names names);
  Setting<double> number(Names names);
  Setting<std::int64_t> integer(Names names);
  /// A size of a mesh axis, or of stages: 1 to 2^20.
  Setting<std::int64_t> ranks(Names names);
  Setting<bool> flag(Names names);
  std::vector<std::string> list(Names names);  ///< of words; a scalar is split at spaces
  Keys section(std::string_view name);
  /// Marks a key as read.
  void take(std::string_view name) { used_->insert(std::string(name)); }
  /// "prefix.name".
  std::string path(std::string_view name) const;
  /// "name: value", for reports.
  std::string shown(std::string_view name) const;

  // Tables. Each row that is active (no_effect: given) is reported once.
  void no_effect(std::span<const KeyReason> rows);
  void cannot(std::span<const KeyReason> rows);
  void refuse(std::span<const KeyReason> rows);
  /// Reports keys that nobody asked for.
  void leftovers(std::string_view trainer);

 private:
  const config::Node::Entry* entry(std::string_view name) const;
  const config::Node::Entry* first(Names names);
  /// A key that was asked for and is absent, of which this may be a misspelling; empty: none.
  std::string meant_by(std::string_view key) const;
  void wrong(const config::Node::Entry& entry, std::string_view wanted);

  const config::Node* map_;
  Findings* findings_;
  std::string prefix_;
  std::shared_ptr<std::set<std::string, std::less<>>> used_;
};

}  // namespace automodel::foreign
