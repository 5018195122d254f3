// Memory figures from /proc.
#pragma once

#include <string_view>

namespace automodel {

/// Field `name` ("MemTotal") of a file such as /proc/meminfo, converted from KiB to bytes; 0 if missing.
double proc_field(const char* path, std::string_view name);

}  // namespace automodel
