// Warnings are for what goes on, but works worse than its user would think.
#pragma once

#include <functional>
#include <string>

namespace kerascnn {

// Shows the text: as a warning of the host language where that has set a handler, else on standard
// error. Throws what the handler throws, where warnings are errors.
void warn(const std::string& text);

// Called with each warning, by any thread. Returns the one before.
using WarningHandler = std::function<void(const std::string&)>;
WarningHandler set_warning_handler(WarningHandler handler);

}  // namespace kerascnn
