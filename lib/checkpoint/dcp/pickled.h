// Values as Python's pickles (protocol 2), as torch.save and torch.distributed.checkpoint write them: every function
// gives the opcodes that leave one value on the stack.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::checkpoint::pickled {

std::string none();
std::string boolean(bool value);
std::string integer(std::int64_t value);
std::string real(double value);
std::string text(std::string_view value);
std::string tuple(const std::vector<std::string>& items);
std::string list(const std::vector<std::string>& items);
/// Keys and values in turn.
std::string dict(const std::vector<std::string>& keys_and_values);
std::string global(std::string_view module, std::string_view name);
std::string call(const std::string& function, const std::vector<std::string>& arguments);
/// An object of a class without arguments, with this state.
std::string object(const std::string& of_class, const std::string& state);
/// What persistent_id() gave for an object that is stored elsewhere.
std::string stored_elsewhere(const std::string& id);
/// torch.Size.
std::string size(const std::vector<std::int64_t>& sizes);

/// The whole pickle of one value.
std::string document(const std::string& value);

}  // namespace automodel::checkpoint::pickled
