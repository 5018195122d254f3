// Names of models: mirrors, folders, and the last part of a path.
#pragma once

#include <string>
#include <string_view>

#include "foreign/findings.h"
#include "foreign/resolved.h"

namespace automodel::foreign {

/// Sets catalogue_name where a mirror's original is known, and asks for --model where the name is a local folder that
/// is not here. Notes a length above the model's own limit. Names the tower and the projector of a model with pictures;
/// of others drops what is said of them.
void name_model(Resolved& out, Findings& findings);

/// The catalogue's name that ends with "/`last`"; empty if it has none.
std::string with_last_part(std::string_view last);

}  // namespace automodel::foreign
