// Adds to an error's message the place in the user's model where it arose; the type of the error
// stays.
#pragma once

#include <string>

#include "core/base/error.h"

namespace kerascnn {

inline std::string scoped_message(const std::string& scope, const std::string& text) {
  const std::string prefix = scope + ": ";
  return text.starts_with(prefix) ? text : prefix + text;  // once, where calls are nested
}

// Calls function(); an error that leaves it starts with "scope: ".
template <typename Function>
decltype(auto) with_scope(const std::string& scope, Function&& function) {
  if (scope.empty()) return function();
  try {
    return function();
  } catch (const ValueError& error) {
    throw ValueError(scoped_message(scope, error.what()));
  } catch (const TypeError& error) {
    throw TypeError(scoped_message(scope, error.what()));
  } catch (const LibraryError& error) {
    throw LibraryError(scoped_message(scope, error.what()));
  } catch (const DeviceError& error) {
    throw DeviceError(scoped_message(scope, error.what()));
  } catch (const OutOfMemoryError& error) {
    throw OutOfMemoryError(scoped_message(scope, error.what()), error.requested, error.allocated,
                           error.cached, error.free);
  }
}

}  // namespace kerascnn
