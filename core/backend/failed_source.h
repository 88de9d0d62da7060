// Sources that kerascnn wrote and that don't compile. That is a fault of kerascnn, which should be
// reported.
#pragma once

#include <string>
#include <vector>

namespace kerascnn {

// Warns, once for each source, that `what` ("the kernel of multiply+add") is computed in another
// way and slower. Source and messages of the compiler are kept in a file that the warning names:
// below KERASCNN_HOME, or in the folder for temporary files where that is not possible.
void warn_of_failed_source(const std::string& what, const std::string& source,
                           const std::string& log);

// The same with these folders, of which the first one that can be written to is taken. Returns the
// path; empty where there is none.
std::string keep_failed_source(const std::vector<std::string>& folders, const std::string& what,
                               const std::string& source, const std::string& log);

}  // namespace kerascnn
